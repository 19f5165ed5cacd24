"""The foundations that every other package uses: errors, arrays, validation, atomic files, random streams, problem
statements and action spaces.
"""
