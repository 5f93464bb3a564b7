/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* The parts of the program that use the terminal. */

#include <glib.h>
#include <stdbool.h>
#include "content/browse.h"
#include "vbrowse/screen.h"

enum ui_focus { UI_ENTRIES, UI_VERSIONS };

struct ui {
    struct browse *browse;
    enum ui_focus focus;
    guint entry_top, version_top; /* the first row of each pane               */
    char *status;                 /* for the line above the keys; NULL: none  */
    bool is_error;                /* of `status`                              */
    GPtrArray *restores;          /* of this run, not undone: struct restored */
    bool quit;
};

/* Sets the status line; the text is made printable. */
void ui_say(struct ui *ui, const char *format, ...) G_GNUC_PRINTF(2, 3);
void ui_fail(struct ui *ui, const char *format, ...) G_GNUC_PRINTF(2, 3);

/* ---- panes.c ------------------------------------------------------------------------------------ */

/* Draws everything. `data`: the struct ui. */
void ui_draw(void *data);

/* Lines of the pane that has the keys. */
int ui_page(const struct ui *ui);

/* ---- viewer.c ------------------------------------------------------------------------------------ */

enum viewer_mode { VIEWER_CONTENT, VIEWER_SINCE, VIEWER_CHANGE, VIEWER_MODES };

/* Shows the version under the cursor until the user leaves it. */
void viewer_run(struct ui *ui, enum viewer_mode mode);

/* Shows printable lines; takes them over. */
void viewer_show(struct ui *ui, const char *title, GPtrArray *lines);

/* ---- actions.c ----------------------------------------------------------------------------------- */

/* Restores the marked entries, or that under the cursor; with `only_current` this one in any case. */
void action_restore(struct ui *ui, bool only_current);
void action_restore_elsewhere(struct ui *ui);
void action_undo(struct ui *ui);
void action_restored_free(void *restored);

/* ---- search.c ------------------------------------------------------------------------------------ */

/* Asks for a name, a command, a text in the content, a time; and applies it. */
void search_name(struct ui *ui);
void search_command(struct ui *ui);
void search_content(struct ui *ui);
void search_time(struct ui *ui);

/* Goes to a time as the user wrote it. */
bool search_go_to(struct ui *ui, const char *text);
