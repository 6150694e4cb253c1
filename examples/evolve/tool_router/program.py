"""Which tool is meant? A tool's score is the sum of the weights of the words it shares with a question."""


# EVOLVE-BLOCK-START
def weight(in_question, in_name, in_text, tools_with_word, tools, length, mean_length):
    """Weight of one shared word.

    It stands so often in the question, in the tool's name and in all of the tool's text (name included);
    `tools_with_word` of all `tools` have it; the tool's text has `length` words, on average
    `mean_length`. Start: every shared word counts the same.
    """
    return 1.0 * in_text


# EVOLVE-BLOCK-END
