"""What two or more papers share."""
