/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The terminal: text in rectangles, keys, a line to type in, a question. All texts are printable UTF-8
 * (wb_text_printable); they are converted to the character set of the locale.
 */

#include <glib.h>
#include <stdbool.h>

/* The smallest terminal that vbrowse works on. */
#define SCREEN_COLUMNS_MIN 40
#define SCREEN_LINES_MIN 10

enum screen_style {
    SCREEN_PLAIN,
    SCREEN_TITLE,
    SCREEN_BOLD,
    SCREEN_FAINT,
    SCREEN_CURSOR,  /* of the pane that has the keys */
    SCREEN_BESIDE,  /* of the other one              */
    SCREEN_RED,
    SCREEN_GREEN,
    SCREEN_YELLOW,
    SCREEN_BLUE,
    SCREEN_CYAN,
    SCREEN_STYLES,
};

struct screen_area {
    int y, x, height, width;
};

/* Keys beyond those of a byte; printable ones are their Unicode character. */
enum screen_key {
    SCREEN_KEY_NONE = -1,
    SCREEN_KEY_UP = 0x110000, /* above all characters */
    SCREEN_KEY_DOWN,
    SCREEN_KEY_LEFT,
    SCREEN_KEY_RIGHT,
    SCREEN_KEY_PAGE_UP,
    SCREEN_KEY_PAGE_DOWN,
    SCREEN_KEY_HOME,
    SCREEN_KEY_END,
    SCREEN_KEY_BACKSPACE,
    SCREEN_KEY_DELETE,
    SCREEN_KEY_RESIZE,
    SCREEN_KEY_REFRESH,
    SCREEN_KEY_OTHER,
};
#define SCREEN_KEY_ENTER '\n'
#define SCREEN_KEY_ESCAPE 27

/*
 * Takes over the terminal. From then on standard error is kept back (screen_end prints it), since it would go to the
 * same terminal. 0, or an exit status after an error line.
 */
int screen_begin(void);
void screen_end(void);

/* The last line that was written to standard error meanwhile, without "NAME: " before it; g_free. NULL: none. */
char *screen_take_error(void);

/* False: the terminal is too small, which is shown instead. */
bool screen_is_usable(void);
int screen_lines(void);
int screen_columns(void);

void screen_clear(void);
void screen_show(void);

/* `text` in line `line` of the area, cut to its width and filled up with blanks. */
void screen_line(const struct screen_area *area, int line, enum screen_style style, const char *text);

/* `text` at `column` of that line; returns the column after it. */
int screen_text(const struct screen_area *area, int line, int column, enum screen_style style, const char *text);

/* Where the hidden cursor of the terminal is, which screen readers follow. */
void screen_point(const struct screen_area *area, int line);

/* A line between two panes, with `text` in it. */
void screen_rule(const struct screen_area *area, int line, enum screen_style style, const char *text);

/* Waits for a key, up to `milliseconds` (-1: any time, 0: not at all). NONE: there is none, or a signal came. */
int screen_key(int milliseconds);

/* Whether a key waits; `fd` (-1: none) has data: *ret_fd. Waits as screen_key does. */
bool screen_wait(int fd, int milliseconds, bool *ret_fd);

/* A sound, or a flash. */
void screen_beep(void);

/* The lowest line: for messages. */
void screen_message(enum screen_style style, const char *text);

/* A line of text that the user types after `label`, with `text` to begin with; g_free. NULL: Escape. `draw` redraws
 * what is above after the size changed. */
char *screen_prompt(const char *label, const char *text, void (*draw)(void *data), void *data);

/* Shows lines (printable texts) in a box above the lowest line, with the question below; true: the answer is "y". */
bool screen_ask(const GPtrArray *lines, const char *question, void (*draw)(void *data), void *data);
