"""The plan of a run: a recipe, and what data, options and the user change in it, each change a record with a rank."""
