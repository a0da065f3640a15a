"""A job as data: request, program, plan, container, folder, rendezvous."""
