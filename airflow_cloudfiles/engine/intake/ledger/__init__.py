"""Know which files were seen already."""
