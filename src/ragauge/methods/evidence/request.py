"""CFIC's request for evidence: the words around a document, the same in training and in use."""

from dataclasses import dataclass
from typing import Any, Literal

from ragauge.assets.control_tokens import TemplateText
from ragauge.methods.prompts.templates import token_ids, wrapper

Wording = Literal["paper", "copy"]


@dataclass(frozen=True)
class EvidenceRequest:
    """The words around a document."""

    before: str
    after: str  # holds {question}
    cue: str = ""  # opens the response

    def before_document(self, tokenizer: Any, template: str) -> list[int]:
        """Return token ids of all that precedes the document, the template's words before the
        user's turn among them.
        """
        opening, _ = wrapper(template, tokenizer)
        return token_ids(tokenizer, TemplateText(opening + self.before), template)

    def after_document(self, tokenizer: Any, question: str, template: str) -> list[int]:
        """Return token ids from the document's end to where the evidence begins, as one text."""
        _, task = wrapper(template, tokenizer)
        return token_ids(
            tokenizer, (self.after.format(question=question), TemplateText(task + self.cue))
        )

    def text(self, question: str) -> str:
        """Return the request as one text, `{article}` in the place of the document, without a
        template's words.
        """
        return f"{self.before}{{article}}{self.after.format(question=question)}"


REQUESTS: dict[Wording, EvidenceRequest] = {
    "paper": EvidenceRequest(  # Table 2
        "Below is an article, read the article and answer my question after the article. Now the article begins:\n\n",
        "\nNow the article ends.\nSelect several sentences from the article to answer my question."
        "\nQuestion: {question}",
    ),
    # Ours, for models that were not trained for it. The cue opens the response, so that a sentence
    # follows it as it follows another sentence in the document: after a space.
    "copy": EvidenceRequest(
        "Read the document below. It holds the answer to a question.\n\n",
        "\n\nQuestion: {question}\nCopy the sentences of the document that answer the question.",
        "Evidence:",
    ),
}
