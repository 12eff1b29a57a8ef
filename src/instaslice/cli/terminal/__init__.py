"""What commands share towards their user; no module here is a command.

finite_range    numbers on the command line
program_source  options that say where the programs of a local cluster come from
signals         run until SIGTERM or Ctrl-C
"""
