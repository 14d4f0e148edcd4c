<?xml version="1.0" encoding="UTF-8"?>
<!--
The definitions of lists: an element `list` for each that paragraphs name, with its levels.

A text of Word as mammoth reads it: formats that styles hold are in the runs, text boxes and cells
where they stand, formulas in words. A paragraph of a list begins with an empty text that has the
attributes `list`, `level` and `style`. Runs that are hidden or deleted become elements `hidden` and `deleted`.

The root holds the styles as its last child.
-->
<!DOCTYPE xsl:stylesheet [
  <!ENTITY gap "&#x10FFF0;">
  <!ENTITY unknown "&#x10FFF4;">
]>
<xsl:stylesheet version="1.0"
  xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
  xmlns:func="http://exslt.org/functions"
  xmlns:re="http://exslt.org/regular-expressions"
  xmlns:f="formats"
  xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"
  xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"
  xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"
  extension-element-prefixes="func re" exclude-result-prefixes="f m mc">
  <xsl:import href="formulas.xsl"/>
  <xsl:output method="xml"/>
  <xsl:key name="style" match="w:style" use="@w:styleId"/>
  <xsl:key name="definition" match="w:abstractNum" use="@w:abstractNumId"/>
  <xsl:key name="link" match="w:abstractNum" use="w:styleLink/@w:val"/>

  <xsl:template match="/">
    <xsl:apply-templates select="*"/>
  </xsl:template>
  <xsl:template match="@*|node()">
    <xsl:copy><xsl:apply-templates select="@*|node()"/></xsl:copy>
  </xsl:template>

  <!-- Lists: `anew` says that a level does not go on counting from an earlier list -->
  <xsl:template match="w:numbering">
    <lists>
      <xsl:for-each select="w:num">
        <xsl:variable name="named" select="key('definition', w:abstractNumId/@w:val)"/>
        <xsl:variable name="linked" select="key('link', $named/w:numStyleLink/@w:val)"/>
        <xsl:variable name="definition" select="$linked|$named[not($linked)]"/>
        <xsl:variable name="own" select="w:lvlOverride"/>
        <list id="{@w:numId}" definition="{$definition/@w:abstractNumId}">
          <xsl:for-each select="$own/w:lvl|$definition/w:lvl[not(@w:ilvl = $own[w:lvl]/@w:ilvl)]">
            <xsl:variable name="anew" select="$own[@w:ilvl = current()/@w:ilvl]/w:startOverride/@w:val"/>
            <xsl:variable name="start" select="w:start/@w:val[not($anew)]"/>
            <level n="{@w:ilvl}{substring('0', 1, not(@w:ilvl))}" anew="{$anew}"
              start="{$anew}{$start}{substring('1', 1, not($anew|$start))}" restart="{w:lvlRestart/@w:val}"
              style="{w:pStyle/@w:val}" form="{.//w:numFmt/@w:val}{substring('decimal', 1, 7 * not(.//w:numFmt))}">
              <xsl:if test="w:isLgl"><xsl:attribute name="legal">1</xsl:attribute></xsl:if>
              <xsl:choose>
                <xsl:when test="w:numFmt/@w:val = 'bullet'">-</xsl:when>
                <xsl:when test="w:lvlText"><xsl:value-of select="w:lvlText/@w:val"/></xsl:when>
                <xsl:otherwise><xsl:value-of select="concat('%', @w:ilvl + 1, '.')"/></xsl:otherwise>
              </xsl:choose>
            </level>
          </xsl:for-each>
        </list>
      </xsl:for-each>
    </lists>
  </xsl:template>

  <!-- The value of a format, of the properties that stand here or of a style and those below it -->
  <func:function name="f:format">
    <xsl:param name="properties"/>
    <xsl:param name="style"/>
    <xsl:param name="name"/>
    <xsl:param name="depth" select="0"/>
    <xsl:variable name="mark" select="($properties/*|$properties/w:numPr/*)[local-name() = $name]"/>
    <xsl:variable name="parent" select="key('style', $style)"/>
    <xsl:choose>
      <xsl:when test="$mark/@w:val"><func:result select="string($mark/@w:val)"/></xsl:when>
      <xsl:when test="$mark"><func:result select="'on'"/></xsl:when>
      <xsl:when test="$parent and $depth &lt; 20">
        <func:result select="f:format($parent/w:pPr|$parent/w:rPr, $parent/w:basedOn/@w:val, $name, $depth + 1)"/>
      </xsl:when>
      <xsl:otherwise><func:result select="''"/></xsl:otherwise>
    </xsl:choose>
  </func:function>

  <!-- The value of a format of a run: its own, else of its style, else of its paragraph's -->
  <func:function name="f:run">
    <xsl:param name="run"/>
    <xsl:param name="name"/>
    <xsl:variable name="own" select="f:format($run/w:rPr, $run/w:rPr/w:rStyle/@w:val, $name)"/>
    <xsl:variable name="style" select="$run/ancestor::w:p[1]/w:pPr/w:pStyle/@w:val"/>
    <xsl:choose>
      <xsl:when test="$own != ''"><func:result select="$own"/></xsl:when>
      <xsl:otherwise><func:result select="f:format(/.., $style, $name)"/></xsl:otherwise>
    </xsl:choose>
  </func:function>

  <func:function name="f:is-on">
    <xsl:param name="value"/>
    <func:result select="$value != '' and not(re:test($value, '^(0|false|off)$'))"/>
  </func:function>

  <xsl:template match="w:r">
    <xsl:variable name="raised" select="f:run(., 'vertAlign')"/>
    <xsl:variable name="position" select="f:run(., 'position')"/>
    <xsl:choose>
      <xsl:when test="f:is-on(f:run(., 'vanish'))"><hidden><xsl:value-of select="."/></hidden></xsl:when>
      <xsl:when test="f:is-on(f:run(., 'strike')) or f:is-on(f:run(., 'dstrike'))">
        <deleted><xsl:value-of select="."/></deleted>
      </xsl:when>
      <xsl:otherwise>
        <w:r>
          <w:rPr>
            <xsl:choose>
              <xsl:when test="$raised = 'superscript' or ($raised = '' and $position &gt; 0)">
                <w:vertAlign w:val="superscript"/>
              </xsl:when>
              <xsl:when test="$raised = 'subscript' or ($raised = '' and $position &lt; 0)">
                <w:vertAlign w:val="subscript"/>
              </xsl:when>
            </xsl:choose>
          </w:rPr>
          <xsl:apply-templates select="node()[not(self::w:rPr)]"/>
        </w:r>
      </xsl:otherwise>
    </xsl:choose>
  </xsl:template>
  <xsl:template match="w:del[w:r]"><deleted><xsl:value-of select="."/></deleted></xsl:template>

  <xsl:template match="w:p">
    <xsl:variable name="style" select="w:pPr/w:pStyle/@w:val"/>
    <xsl:variable name="marks" select="w:pPr/w:rPr"/>
    <xsl:variable name="list" select="f:format(w:pPr, $style, 'numId')"/>
    <xsl:copy>
      <xsl:apply-templates select="@*|w:pPr"/>
      <xsl:if test="$list != '' and not($marks/w:del or f:is-on(f:format($marks, $style, 'vanish')))">
        <w:r><w:t list="{$list}" level="{f:format(w:pPr, $style, 'ilvl')}" style="{$style}"/></w:r>
      </xsl:if>
      <xsl:apply-templates select="node()[not(self::w:pPr)]"/>
    </xsl:copy>
  </xsl:template>

  <!-- What mammoth passes over with the text inside, and what it reads amiss -->
  <xsl:template match="mc:AlternateContent">
    <xsl:apply-templates select="*[1]/node()"/>
  </xsl:template>
  <xsl:template match="w:fldSimple|w:bdo|w:dir|w:customXml|w:ruby|w:rubyBase|m:oMathPara">
    <xsl:apply-templates select="node()"/>
  </xsl:template>
  <xsl:template match="w:moveFrom|w:rt|w:rubyPr|w:fldData|w:bookmarkStart|w:bookmarkEnd|w:styles|w:tblHeader|w:sdtPr"/>
  <xsl:template match="w:instrText[re:test(., '^\s*EQ\s')]"><w:t>&unknown;</w:t></xsl:template>
  <xsl:template match="w:cr"><w:br/></xsl:template>
  <xsl:template match="w:ptab"><w:tab/></xsl:template>
  <xsl:template match="w:drawing[.//w:txbxContent]|w:pict[.//w:txbxContent]|w:object[.//w:txbxContent]">
    <w:pict><xsl:apply-templates select=".//w:txbxContent[not(ancestor::mc:Fallback)]"/></w:pict>
  </xsl:template>
  <xsl:template match="m:oMath">
    <w:r>
      <w:t><xsl:value-of select="concat('&gap;', f:text(*), '&gap;')" xmlns:f="formulas"/></w:t>
    </w:r>
  </xsl:template>

  <!-- Rows that begin or end inside their table, and cells that are merged sideways in the old way -->
  <xsl:template match="w:tr">
    <xsl:copy>
      <xsl:apply-templates select="w:tblPrEx|w:trPr"/>
      <xsl:call-template name="cells"><xsl:with-param name="n" select="w:trPr/w:gridBefore/@w:val"/></xsl:call-template>
      <xsl:apply-templates select="*[not(self::w:tblPrEx or self::w:trPr)]"/>
      <xsl:call-template name="cells"><xsl:with-param name="n" select="w:trPr/w:gridAfter/@w:val"/></xsl:call-template>
    </xsl:copy>
  </xsl:template>
  <xsl:template name="cells">
    <xsl:param name="n"/>
    <xsl:if test="$n &gt; 0">
      <w:tc/>
      <xsl:call-template name="cells"><xsl:with-param name="n" select="$n - 1"/></xsl:call-template>
    </xsl:if>
  </xsl:template>
  <xsl:template match="w:tc[w:tcPr/w:hMerge[not(@w:val = 'restart')]]">
    <w:tc>
      <xsl:apply-templates select="preceding-sibling::w:tc[not(w:tcPr/w:hMerge[not(@w:val = 'restart')])][1]/node()"/>
    </w:tc>
  </xsl:template>
</xsl:stylesheet>
