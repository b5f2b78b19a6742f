"""Every bridge between forms, one file or folder for each, named after where it leads from and to."""
