/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A tree with its history, and its expected past. */

#include "capture_ops.h"
#include "history/history.h"

static struct tree tree;
static struct wb_history *history;

static inline void setup(void)
{
    tree_open(&tree);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

static inline void teardown(void)
{
    wb_history_free(history);
    tree_close(&tree);
}

static inline int64_t now(void)
{
    return wb_store_tick(tree.store);
}

/* The state of `path` at `when`; NULL if it did not exist. */
static inline struct wb_revision *find(const char *path, int64_t when, int *ret_error)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    struct wb_revision *revision, *child;
    int r = 0;

    ck_assert_int_eq(wb_revision_root(history, when, &revision), 0);
    for (char **part = parts; *part && **part && r == 0; part++) {
        r = wb_revision_child(history, revision, *part, &child);
        wb_revision_unref(revision);
        revision = r == 0 ? child : NULL;
    }
    if (ret_error)
        *ret_error = r;
    else
        ck_assert_msg(r == 0 || r == WB_ABSENT, "%s: %d %s", path, r, wb_history_error());
    return revision;
}

static inline char *content_of(struct wb_revision *revision, ssize_t *ret)
{
    struct wb_file_view *view;
    int r = wb_file_view_open(history, revision, &view);
    char *text;

    *ret = r;
    if (r < 0)
        return NULL;
    text = g_malloc0(wb_file_view_size(view) + 1);
    *ret = wb_file_view_pread(view, text, wb_file_view_size(view), 0);
    wb_file_view_free(view);
    return text;
}

static inline void expect_content(const char *path, int64_t when, const char *wanted)
{
    struct wb_revision *revision = find(path, when, NULL);
    g_autofree char *text = NULL;
    ssize_t n = 0;

    if (!wanted) {
        ck_assert_msg(!revision, "%s was there", path);
        return;
    }
    ck_assert_msg(revision != NULL, "%s was not there", path);
    text = content_of(revision, &n);
    ck_assert_msg(n == (ssize_t)strlen(wanted), "%s: %zd %s", path, n, wb_history_error());
    ck_assert_str_eq(text, wanted);
    wb_revision_unref(revision);
}

static inline void mkdirs(const char *first, ...)
{
    va_list list;

    va_start(list, first);
    for (const char *path = first; path; path = va_arg(list, const char *))
        op_birth(&tree, path, WB_OP_MKDIR);
    va_end(list);
}
