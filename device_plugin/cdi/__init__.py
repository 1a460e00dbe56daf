"""GPUs by their CDI names: the specification that container runtimes read, and its file."""
