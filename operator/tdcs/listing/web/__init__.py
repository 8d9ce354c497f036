"""Lists web sources: servers whose files a document names, and repositories of the Hugging Face Hub."""
