"""The `tokennorm` command, one module per subcommand."""
