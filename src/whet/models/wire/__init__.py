"""The model APIs as JSON and bytes: one reader and one writer for each, whoever speaks it.

`chat`, `responses` and `messages` each read and write requests and answers, whole and streamed.  What two of
them share stands in `neutral.py`: an answer is a series of AnswerParts, so translating is reading one API and
writing another, and no pair of APIs has a translator of its own.  A request has no form of its own beside
chat's, which everything is translated to first.  `sse` cuts and writes event streams.  Nothing here opens a
connection.
"""
