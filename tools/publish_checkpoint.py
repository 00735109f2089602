"""Makes a checkpoint small and safe to share: `python tools/publish_checkpoint.py SOURCE OUT.pth`."""

from tokennorm.cli.publish import main

if __name__ == '__main__':
    main()
