/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* States that must not change while others are erased, and the results for these. */

#include "capture_ops.h"
#include "maintain/erase/erase.h"
#include <inttypes.h>

#define SECRET "XYZZY-secret"

static struct tree tree;
static struct wb_history *history;
static GPtrArray *seen; /* states that must not change: struct state */

static inline void setup(void)
{
    op_actor = 0;
    tree_open(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    seen = g_ptr_array_new_with_free_func(g_free);
}

static inline void teardown(void)
{
    g_ptr_array_unref(seen);
    wb_history_free(history);
    tree_close(&tree);
}

/* ---- looks -------------------------------------------------------------------------------------- */

static inline struct wb_revision *at(const char *path, int64_t when)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    struct wb_revision *revision, *child;

    ck_assert_int_eq(wb_revision_root(history, when, &revision), 0);
    for (char **part = parts; *part && **part; part++) {
        int r = wb_revision_child(history, revision, *part, &child);

        wb_revision_unref(revision);
        ck_assert_msg(r == 0 || r == WB_ABSENT, "%s: %d %s", path, r, wb_history_error());
        if (r == WB_ABSENT)
            return NULL;
        revision = child;
    }
    return revision;
}

static inline char *content(struct wb_revision *revision)
{
    struct wb_file_view *view;
    char *text;
    int r = wb_file_view_open(history, revision, &view);

    ck_assert_msg(r == 0, "view: %d %s", r, wb_history_error());
    text = g_malloc0(wb_file_view_size(view) + 1);
    ck_assert_int_ge(wb_file_view_pread(view, text, wb_file_view_size(view), 0), 0);
    wb_file_view_free(view);
    return text;
}

/* Everything of a state as text, for comparing. */
static inline char *describe(const char *path, int64_t when)
{
    struct wb_revision *revision = at(path, when);
    GString *text = g_string_new(path);
    struct wb_attrs attrs;
    char names[256] = "";

    if (!revision) {
        g_string_append(text, " absent");
        return g_string_free(text, FALSE);
    }
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    g_string_append_printf(text, " ino %" PRIu64 " mode %o nlink %u mtime %" PRId64 " ctime %" PRId64,
                           wb_revision_object(revision).ino, attrs.mode, attrs.nlink, attrs.mtime, attrs.ctime);
    ck_assert_int_ge(wb_revision_listxattr(history, revision, names, sizeof(names)), 0);
    g_string_append_printf(text, " xattr %s", names);
    if (S_ISREG(attrs.mode)) {
        g_autofree char *bytes = content(revision);

        g_string_append_printf(text, " content %s", bytes);
    }
    if (S_ISDIR(attrs.mode)) {
        struct wb_past_dir *dir;

        ck_assert_int_eq(wb_past_dir_open(history, revision, &dir), 0);
        for (size_t i = 0; i < wb_past_dir_count(dir); i++)
            g_string_append_printf(text, " %s", wb_past_dir_name(dir, i));
        wb_past_dir_free(dir);
    }
    wb_revision_unref(revision);
    return g_string_free(text, FALSE);
}

struct state {
    char path[32];
    int64_t when;
    char text[2000];
};

/* This state must not change from now on. */
static inline void stays(const char *path)
{
    struct state *state = g_new0(struct state, 1);
    g_autofree char *text = NULL;

    state->when = wb_store_tick(tree.store);
    g_strlcpy(state->path, path, sizeof(state->path));
    text = describe(path, state->when);
    g_strlcpy(state->text, text, sizeof(state->text));
    g_ptr_array_add(seen, state);
}

static inline void check_stayed(void)
{
    for (guint i = 0; i < seen->len; i++) {
        struct state *state = seen->pdata[i];
        g_autofree char *now = describe(state->path, state->when);

        ck_assert_msg(strcmp(now, state->text) == 0, "state %u was\n%s\nand is\n%s", i, state->text, now);
    }
}

static inline bool store_holds(const char *text)
{
    g_autofree char *command =
        g_strdup_printf("grep -rqaF -e '%s' '%s/" WB_STORE_NAME "'", text, tree.path);

    return system(command) == 0;
}

static inline void gone(const char *path, int64_t when)
{
    struct wb_revision *revision = at(path, when);

    ck_assert_msg(!revision, "%s is still there", path);
}
