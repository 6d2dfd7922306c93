"""How a planted bug is put into a source.

The text that the bug replaces is looked for word by word, so that neither line
ends nor indentation matter.  A file may be followed by a colon and the name of
the function that has the text.
"""

import re


def _pattern(text):
    words = r'\s+'.join(re.escape(word) for word in text.split())

    # a line may be broken behind a parenthesis, or not
    return re.compile(re.sub(r'\\\((?:\\s\+)?', r'\\(\\s*', words))


def _span(source, function):
    if not function:
        return 0, len(source)

    begin = re.search(r'(?m)^%s\(.*\n(?: .*\n)*\{$' % function, source)
    if begin is None:
        raise ValueError("there is no %s()" % function)

    return begin.start(), source.index('\n}\n', begin.end())


def file_of(where):
    """Returns the file in where, below src/."""

    return where.split(':')[0]


def plant(source, where, there, instead):
    """Returns source with the bug; ValueError if there is not there once."""

    begin, end = _span(source, where.partition(':')[2])
    found = list(_pattern(there).finditer(source, begin, end))

    if len(found) != 1:
        raise ValueError("the text is %d times in src/%s: %s"
                         % (len(found), where, there.strip()))

    return source[:found[0].start()] + instead + source[found[0].end():]
