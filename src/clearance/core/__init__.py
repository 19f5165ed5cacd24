"""What every other package needs: errors, arrays, validation, atomic files, random streams, statements and spaces."""
