"""Loops and answers: scrapes from the views, facts and durations as they come."""
