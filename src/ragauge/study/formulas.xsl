<?xml version="1.0" encoding="UTF-8"?>
<!--
Formulas of MathML and of Word's OMML as one line of text.

What needs it is put in parentheses: (a+b)/2, x^(n+1). A fraction, a root or a script ends where a
blank follows: 1/2 x is half of x. Around it stands &gap;, which html_tree makes a blank if letters,
digits or parentheses would touch. &unknown; stands before what no template here reads.
-->
<!DOCTYPE xsl:stylesheet [
  <!ENTITY gap "&#x10FFF0;">
  <!ENTITY unknown "&#x10FFF4;">
  <!ENTITY parts "*[not(re:test(local-name(), 'Pr$'))]">
  <!ENTITY simple "(\d[\d.,]*|[^\W\d_]*|[(\[|][^()\[\]|]*[)\]|]|.)$">
]>
<xsl:stylesheet version="1.0"
  xmlns:xsl="http://www.w3.org/1999/XSL/Transform"
  xmlns:func="http://exslt.org/functions"
  xmlns:re="http://exslt.org/regular-expressions"
  xmlns:f="formulas"
  xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"
  xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"
  extension-element-prefixes="func re" exclude-result-prefixes="f m w">
  <xsl:output method="text"/>

  <xsl:template match="/">
    <xsl:apply-templates select="*" mode="formula"/>
  </xsl:template>

  <!-- The text of elements, without blanks around -->
  <func:function name="f:text">
    <xsl:param name="nodes"/>
    <xsl:variable name="text"><xsl:apply-templates select="$nodes" mode="formula"/></xsl:variable>
    <func:result select="re:replace(string($text), '^[\s&gap;]+|[\s&gap;]+$', 'g', '')"/>
  </func:function>

  <!-- The text of elements behind a sign, in parentheses if need be; nothing for no text -->
  <func:function name="f:part">
    <xsl:param name="nodes"/>
    <xsl:param name="sign" select="''"/>
    <xsl:variable name="text" select="f:text($nodes)"/>
    <xsl:choose>
      <xsl:when test="$text = ''"><func:result select="''"/></xsl:when>
      <xsl:when test="re:test($text, '^&simple;') or ($sign != '' and re:test($text, '^[+\u2212\u2013-]&simple;'))">
        <func:result select="concat($sign, $text)"/>
      </xsl:when>
      <xsl:otherwise><func:result select="concat($sign, '(', $text, ')')"/></xsl:otherwise>
    </xsl:choose>
  </func:function>

  <!-- Words and signs -->
  <xsl:template mode="formula" match="mi|mn|mo|ms|mtext">
    <xsl:value-of select="translate(normalize-space(.), '&#x2061;&#x2062;&#x2063;&#x2064;', '&gap;&gap;&gap;&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="m:t">
    <xsl:value-of select="translate(., '&#x2061;&#x2062;&#x2063;&#x2064;', '&gap;&gap;&gap;&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="mspace">
    <xsl:text> </xsl:text>
  </xsl:template>

  <!-- Scripts, fractions, roots, sums -->
  <xsl:template mode="formula" match="msup|mover|m:sSup|m:limUpp">
    <xsl:value-of select="concat('&gap;', f:part(&parts;[1]), f:part(&parts;[2], '^'), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="msub|munder|m:sSub|m:limLow">
    <xsl:value-of select="concat('&gap;', f:part(&parts;[1]), f:part(&parts;[2], '_'), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="msubsup|munderover|m:sSubSup">
    <xsl:value-of select="concat('&gap;', f:part(&parts;[1]), f:part(&parts;[2], '_'), f:part(&parts;[3], '^'), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="mmultiscripts">
    <xsl:text>&gap;</xsl:text>
    <xsl:for-each select="mprescripts/following-sibling::*">
      <xsl:value-of select="f:part(., substring('_^', 1 + (position() + 1) mod 2, 1))"/>
    </xsl:for-each>
    <xsl:value-of select="concat('&gap;', f:part(*[1]))"/>
    <xsl:for-each select="*[position() &gt; 1][not(self::mprescripts or preceding-sibling::mprescripts)]">
      <xsl:value-of select="f:part(., substring('_^', 1 + (position() + 1) mod 2, 1))"/>
    </xsl:for-each>
    <xsl:text>&gap;</xsl:text>
  </xsl:template>
  <xsl:template mode="formula" match="m:sPre">
    <xsl:value-of select="concat('&gap;', f:part(m:sub, '_'), f:part(m:sup, '^'), '&gap;', f:part(m:e), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="mfrac|m:f">
    <xsl:value-of select="concat('&gap;', f:part(&parts;[1]), f:part(&parts;[2], '/'), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="mfrac[re:test(@linethickness, '^0')]|m:f[m:fPr/m:type/@m:val = 'noBar']">
    <xsl:value-of select="concat('(', f:text(&parts;[1]), ' over ', f:text(&parts;[2]), ')')"/>
  </xsl:template>
  <xsl:template mode="formula" match="msqrt|m:rad[not(f:text(m:deg))]|menclose[@notation = 'radical']">
    <xsl:value-of select="concat('&gap;&#x221A;', f:part(&parts;[not(self::m:deg)]), '&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="mroot">
    <xsl:value-of select="concat('&gap;', f:part(*[1]), '^(1', f:part(*[2], '/'), ')&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="m:rad">
    <xsl:value-of select="concat('&gap;', f:part(m:e), '^(1', f:part(m:deg, '/'), ')&gap;')"/>
  </xsl:template>
  <xsl:template mode="formula" match="m:nary">
    <xsl:variable name="sign" select="m:naryPr/m:chr/@m:val"/>
    <xsl:value-of select="concat('&gap;', $sign, substring('&#x222B;', 1, not($sign)), f:part(m:sub, '_'),
      f:part(m:sup, '^'), ' ', f:part(m:e), '&gap;')"/>
  </xsl:template>

  <!-- Parentheses, tables, functions, accents -->
  <xsl:template mode="formula" match="mfenced|m:d">
    <xsl:variable name="opening" select="@open|m:dPr/m:begChr/@m:val"/>
    <xsl:variable name="closing" select="@close|m:dPr/m:endChr/@m:val"/>
    <xsl:variable name="between" select="@separators|m:dPr/m:sepChr/@m:val"/>
    <xsl:value-of select="concat($opening, substring('(', 1, not($opening)))"/>
    <xsl:for-each select="&parts;">
      <xsl:if test="position() &gt; 1">
        <xsl:value-of select="concat($between, substring(substring(',|', 1 + boolean(self::m:*), 1), 1, not($between)))"/>
      </xsl:if>
      <xsl:apply-templates select="." mode="formula"/>
    </xsl:for-each>
    <xsl:value-of select="concat($closing, substring(')', 1, not($closing)))"/>
  </xsl:template>
  <xsl:template mode="formula" match="mtable|m:m">
    <xsl:text>[</xsl:text>
    <xsl:call-template name="joined"><xsl:with-param name="between" select="'; '"/></xsl:call-template>
    <xsl:text>]</xsl:text>
  </xsl:template>
  <xsl:template mode="formula" match="m:eqArr">
    <xsl:call-template name="joined"><xsl:with-param name="between" select="'; '"/></xsl:call-template>
  </xsl:template>
  <xsl:template mode="formula" match="mtr|m:mr">
    <xsl:call-template name="joined"><xsl:with-param name="between" select="', '"/></xsl:call-template>
  </xsl:template>
  <xsl:template mode="formula" match="m:func">
    <xsl:call-template name="joined"><xsl:with-param name="between" select="'&gap;'"/></xsl:call-template>
  </xsl:template>
  <xsl:template name="joined">
    <xsl:param name="between"/>
    <xsl:for-each select="&parts;">
      <xsl:if test="position() &gt; 1"><xsl:value-of select="$between"/></xsl:if>
      <xsl:apply-templates select="." mode="formula"/>
    </xsl:for-each>
  </xsl:template>
  <xsl:template mode="formula" match="m:acc">
    <xsl:variable name="sign" select="m:accPr/m:chr/@m:val"/>
    <xsl:value-of select="concat(f:text(m:e), $sign, substring('&#x302;', 1, not($sign)))"/>
  </xsl:template>
  <xsl:template mode="formula" match="m:bar">
    <xsl:value-of select="concat(f:text(m:e), '&#x305;')"/>
  </xsl:template>

  <!-- What only groups, what is not shown, and what is not known -->
  <xsl:template mode="formula" match="math|mrow|mstyle|mpadded|merror|mtd|m:oMath|m:e|m:num|m:den|m:deg|m:sub|m:sup|m:lim
    |m:fName|m:r|m:box|m:borderBox|m:groupChr|m:phant|w:ins|w:r|w:hyperlink">
    <xsl:apply-templates select="*" mode="formula"/>
  </xsl:template>
  <xsl:template mode="formula" match="semantics|maction">
    <xsl:apply-templates select="*[1]" mode="formula"/>
  </xsl:template>
  <xsl:template mode="formula" match="mphantom|none|m:*[re:test(local-name(), 'Pr$')]|w:rPr|w:del|w:moveFrom
    |m:phant[re:test(m:phantPr/m:show/@m:val, '^(0|off|false)$')]"/>
  <xsl:template mode="formula" match="*">
    <xsl:text>&unknown;</xsl:text>
    <xsl:value-of select="f:text(*|text())"/>
  </xsl:template>
</xsl:stylesheet>
