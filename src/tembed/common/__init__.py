"""What every room uses: errors, files, progress, text. Nothing here imports torch."""
