"""What a training rests on: processes, random numbers, files that are whole, and how it goes on after an end."""
