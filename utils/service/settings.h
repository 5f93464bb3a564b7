/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * The wayback.conf of a tree: found behind its mount, read, checked by the program wayback, changed as text so that
 * comments stay, and replaced in one step; then the daemon reads it again.
 */

#include <glib.h>
#include <stdbool.h>
#include <sys/types.h>

struct wb_settings {
    char *tree;   /* SRC                                                                          */
    char *store;  /* the directory of the store, as users see it when the tree is not mounted      */
    char *path;   /* of the file in it; errors have this name, and not that of /proc              */
    int store_fd; /* the directory of the store                                                   */
    pid_t daemon; /* that has the tree mounted; 0: none                                           */
    char *text;   /* of the file; "" if there is none                                             */
};

/* 0, or WB_EXIT_FAILED after an error line: `directory` has no history, or it is of another user. */
int wb_settings_open(const char *directory, struct wb_settings *ret);
void wb_settings_clear(struct wb_settings *settings);

/*
 * Checks a text. True: it is correct; *ret_json (may be NULL) is what `wayback --check-config --json` prints. Else
 * `mistakes` gets lines "PATH:LINE:COLUMN: reason", with `path` (of the file) in them. g_free.
 */
bool wb_settings_check(const char *text, const char *path, GPtrArray *mistakes, char **ret_json);

/* A key in the output of --check-config --json. Strings are NULL where there is nothing. */
struct wb_setting {
    char *section, *key, *value, *initial;
    bool is_set; /* in the file; else `value` is the default */
};
void wb_setting_free(struct wb_setting *setting);

/*
 * The key that `name` means: KEY of [snapshots] or [history], or SECTION.KEY. NULL: there is none. With a section
 * that has patterns, as in `path "*.o".keep`, the key is one that is set there.
 */
struct wb_setting *wb_settings_find(const char *json, const char *name);

/* The names of all keys, separated by ", "; g_free. */
char *wb_settings_names(const char *json);

/* The text with the key set in that section, or (`value` NULL) not set any more. g_free. */
char *wb_settings_change(const char *text, const char *section, const char *key, const char *value);

/*
 * Sets keys of [history]: {"keep", "30d", "max-size", "20G", NULL}; a NULL value leaves a key. Returns the text,
 * g_free; NULL after an error line, because a value is invalid.
 */
char *wb_settings_with(const char *text, const char *path, const char *const *pairs);

/* Replaces the file, and has the daemon read it. 0, or WB_EXIT_FAILED after an error line. */
int wb_settings_write(struct wb_settings *settings, const char *text);
