import main

main.start()
