"""What a study has to say: JSON, Markdown and HTML."""
