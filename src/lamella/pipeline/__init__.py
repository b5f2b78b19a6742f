"""What the API and the commands share: files by their endings, forms, stages."""
