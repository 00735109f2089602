"""Generated datasets of shapes, for the demo, the study and the tests."""
