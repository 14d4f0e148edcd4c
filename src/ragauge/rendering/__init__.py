"""Drawing and writing items: colours and panels, tables as CSV, Markdown and LaTeX, figures, the small print."""
