/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * Long output for people: through a pager where standard output is a terminal, and in colours.
 *
 *   static char *color;
 *   static gboolean no_pager;
 *   options:   WB_PAGER_OPTIONS(&color, &no_pager),
 *
 *   r = wb_color_choose(color);       with the other options, before anything is done
 *   if (!json && !no_pager)
 *       wb_pager_begin();             before the first byte is printed
 *   printf("%sgone%s\n", wb_color(WB_COLOR_RED), wb_color(WB_COLOR_OFF));
 *   return wb_cli_end();              waits until the pager has been left
 *
 * A reader who leaves the pager early makes ferror(stdout) true, which ends loops that print; the tool did not
 * fail because of that.
 */

#include <glib.h>
#include <stdbool.h>

#define WB_PAGER_OPTIONS(color, no_pager) \
    {"color", 0, 0, G_OPTION_ARG_STRING, color, "Colours: auto (on a terminal), always or never", "WHEN"}, \
    {"no-pager", 0, 0, G_OPTION_ARG_NONE, no_pager, "Print to the terminal itself", NULL}

/*
 * From now on standard output goes to $WAYBACK_PAGER, $PAGER, or less -FRX, if it is a terminal; so do
 * errors that would go to it. An empty pager, "cat", or one that is not installed, is none.
 */
void wb_pager_begin(void);

/* Ends the output and waits for the pager; true if there was one. wb_cli_end does it. */
bool wb_pager_end(void);

/* Columns of the terminal that standard output is, perhaps by way of the pager; 0: none. */
unsigned wb_pager_columns(void);

enum wb_color {
    WB_COLOR_OFF,
    WB_COLOR_BOLD,
    WB_COLOR_FAINT,
    WB_COLOR_RED,
    WB_COLOR_GREEN,
    WB_COLOR_YELLOW,
    WB_COLOR_BLUE,
    WB_COLOR_CYAN,
};

/* --color=WHEN, NULL: auto (on a terminal, unless $NO_COLOR is set or $TERM is dumb). 0 or WB_EXIT_USAGE. */
int wb_color_choose(const char *when);

/* The sequence that begins the colour, "" where there are to be none. Tables may have them in cells. */
const char *wb_color(enum wb_color color);
