/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* A directory of files, each of which was replaced several times: the input for packing. */
#include "history_tree.h"
#include "maintain/bundle/bundle.h"
#include "maintain/rewrite/compact.h"
#include "random_record.h"

#define NAMES 12
#define RELEASES 5

static char *texts[RELEASES][NAMES];
static int64_t moments[RELEASES];
static struct wb_object objects[RELEASES][NAMES];

static inline char *name_of(unsigned i)
{
    static char name[16];

    g_snprintf(name, sizeof(name), "d/f%u", i);
    return name;
}

static inline char *next_text(const char *old, unsigned name)
{
    GString *text = g_string_new(old);

    /* One is large; one is unlike its former content. */
    for (unsigned i = 0; !old && i < (name == 0 ? 60000u : 300u); i++)
        g_string_append_printf(text, "line %u of %u: %" G_GUINT64_FORMAT "\n", i, name, random_below(1000000));
    if (old)
        g_string_insert(text, (gssize)random_below(text->len), "something new\n");
    return g_string_free(text, FALSE);
}

/* Each release replaces all files, as rename(2) does. */
static inline void setup_releases(void)
{
    setup();
    random_record_seed(7);
    op_birth(&tree, "d", WB_OP_MKDIR);
    for (unsigned i = 0; i < RELEASES; i++) {
        for (unsigned j = 0; j < NAMES; j++) {
            texts[i][j] = next_text(i > 0 ? texts[i - 1][j] : NULL, j);
            op_make(&tree, "new", texts[i][j]);
            objects[i][j] = tree_object(&tree, "new");
            op_rename(&tree, "new", name_of(j), 0);
        }
        moments[i] = now();
    }
}

static inline void teardown_releases(void)
{
    for (unsigned i = 0; i < RELEASES; i++)
        for (unsigned j = 0; j < NAMES; j++)
            g_clear_pointer(&texts[i][j], g_free);
    teardown();
}

static inline void check_all(void)
{
    for (unsigned i = 0; i < RELEASES; i++)
        for (unsigned j = 0; j < NAMES; j++)
            expect_content(name_of(j), moments[i], texts[i][j]);
}

static inline struct wb_compact compact(unsigned flags, const char *name)
{
    struct wb_compact done = {.flags = flags, .before = WB_WHEN_PRESENT};

    ck_assert_int_eq(wb_compact_bodies(tree.store, &done, tree_object(&tree, "d"), name), 0);
    return done;
}

static inline bool has(struct wb_object object, enum wb_object_file file)
{
    struct stat st;

    return wb_bundle_stat(tree.store, object, file, &st) == 0;
}

static inline uint64_t length_of(struct wb_object object)
{
    int fd = wb_grave_open(tree.store, object, false, O_RDONLY);
    struct stat st;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fstat(fd, &st), 0);
    close(fd);
    return (uint64_t)st.st_size;
}
