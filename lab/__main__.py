from lab.commands.cli import main

main()
