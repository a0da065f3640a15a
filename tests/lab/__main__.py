from tests.lab.cli import main

main()
