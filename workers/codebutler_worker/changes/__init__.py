"""What a run changed in the working tree: recorded, shown with the check results, undone, committed."""
