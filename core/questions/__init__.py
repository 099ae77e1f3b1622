"""The chapter's questions and what people get wrong: what is asked, what counts, and how the answer is computed."""
