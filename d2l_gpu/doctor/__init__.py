"""Help when something goes wrong: `explain` (errors) and a report on the machine. Importing this needs no torch."""
