"""What every module may import: messages, files, console, ranks, environment."""
