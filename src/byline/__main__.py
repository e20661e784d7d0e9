"""`python -m byline`: the command line."""

from byline.cli.app import main

if __name__ == "__main__":
    main()
