"""`python -m tokennorm`: the command `tokennorm`."""

from tokennorm.cli.main import main

if __name__ == '__main__':
    main()
