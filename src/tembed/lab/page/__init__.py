"""A page that shows every patch of an analysis as a picture on a map, in a folder that opens by double click."""
