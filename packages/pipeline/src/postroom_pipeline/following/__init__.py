"""Takes in what comes into a directory, as it comes."""
