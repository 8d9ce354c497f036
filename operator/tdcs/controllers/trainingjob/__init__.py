"""The TrainingJob controller: an Indexed Job that starts when its data is there, and a report of where it ran."""
