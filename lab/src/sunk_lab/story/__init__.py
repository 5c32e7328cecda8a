"""The story that the project exists for, told on the stack: its steps, their timings, the demo."""
