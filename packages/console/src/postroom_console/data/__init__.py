"""What the console knows, and how it comes to know it. Nothing here imports a terminal library."""
