/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * All names that were ever in a directory. Random changes of a small tree, some of which fail or are cut short, and
 * after each of them a plain listing: the names and their spans are computed from these alone.
 */
#include "capture/recovery/recover.h"
#include "capture_ops.h"
#include "capture_random.h"
#include "history/versions/names.h"
#include <inttypes.h>
#include <sys/wait.h>

#define STEPS 160

static struct wb_history *history;

/* ---- listings -------------------------------------------------------------------------------- */

/* After each step: directory -> its entries; both as text. */
static GHashTable *seen[STEPS];
static GPtrArray *dirs_then[STEPS]; /* paths */
static int64_t whens[STEPS];

static char *object_name(struct wb_object object)
{
    return g_strdup_printf("%" PRIu64 ".%" PRId64, object.ino, object.birth);
}

static void look(int step_number)
{
    seen[step_number] = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, (GDestroyNotify)g_hash_table_unref);
    dirs_then[step_number] = g_ptr_array_new_with_free_func(g_free);
    list_all();
    for (guint i = 0; i < model.dirs->len; i++) {
        const char *path = model.dirs->pdata[i];

        g_ptr_array_add(dirs_then[step_number], g_strdup(path));
        g_hash_table_insert(seen[step_number], object_name(tree_object(&model.tree, *path ? path : ".")),
                            g_hash_table_new_full(g_str_hash, g_str_equal, g_free, g_free));
    }
    for (guint i = 0; i < model.paths->len; i++) {
        const char *path = model.paths->pdata[i], *name = strrchr(path, '/');
        g_autofree char *parent = name ? g_strndup(path, (gsize)(name - path)) : g_strdup(".");
        g_autofree char *dir = object_name(tree_object(&model.tree, parent));
        GHashTable *entries = g_hash_table_lookup(seen[step_number], dir);

        g_hash_table_insert(entries, g_strdup(name ? name + 1 : path), object_name(tree_object(&model.tree, path)));
    }
    whens[step_number] = wb_store_tick(model.tree.store);
}

/* The entry of `dir` after that step, NULL: none. */
static const char *entry_at(const char *dir, const char *name, int step_number)
{
    GHashTable *entries = g_hash_table_lookup(seen[step_number], dir);

    return entries ? g_hash_table_lookup(entries, name) : NULL;
}

/* "name a..b object": steps after which it was first and last there; `last` is that of the query if still there. */
static void expect_name(GString *text, const char *dir, const char *name, int last)
{
    int spans = 0, index = 0, end = -1;

    for (int i = 0; i <= last; i++)
        spans += entry_at(dir, name, i) && (i == 0 || !entry_at(dir, name, i - 1));
    for (int i = last; i >= 0; i--) {
        if (!entry_at(dir, name, i))
            continue;
        if (end < 0)
            end = i;
        if (i > 0 && entry_at(dir, name, i - 1))
            continue;
        g_string_append_printf(text, "%s %d/%d %d..%d %s\n", name, index++, spans, i, end, entry_at(dir, name, end));
        end = -1;
    }
}

static char *expected(const char *dir, int last)
{
    GString *text = g_string_new("");

    for (const char *name = "abcdefgh"; *name; name++) {
        char one[2] = {*name, '\0'};

        expect_name(text, dir, one, last);
    }
    return g_string_free(text, FALSE);
}

/* ---- results --------------------------------------------------------------------------------- */

/* The first step at whose end a change of `when` had been made. */
static int step_of(int64_t when, int last)
{
    for (int i = 0; i <= last; i++)
        if (when <= whens[i])
            return i;
    ck_abort_msg("a change that is younger than all");
}

static char *listed(struct wb_revision *dir, int last, const char *only)
{
    struct wb_names_options options = {.only = only, .spans = STEPS};
    GString *text = g_string_new("");
    struct wb_names *names;

    ck_assert_msg(wb_names_open(history, dir, &options, &names) == 0, "%s", wb_history_error());
    ck_assert(!wb_names_are_incomplete(names));
    for (size_t i = 0; i < wb_names_count(names); i++) {
        const struct wb_name *name = wb_names_get(names, i);
        g_autofree char *object = object_name(name->object);

        if (name->replaced)
            continue;
        g_string_append_printf(text, "%s %u/%u %d..%d %s\n", name->name, name->index, name->spans,
                               step_of(name->first, last), name->present ? last : step_of(name->last, last) - 1,
                               object);
    }
    wb_names_free(names);
    return g_string_free(text, FALSE);
}

static struct wb_revision *revision_of(const char *path, int64_t when)
{
    g_auto(GStrv) parts = g_strsplit(path, "/", -1);
    struct wb_revision *revision, *child;

    ck_assert_int_eq(wb_revision_root(history, when, &revision), 0);
    for (char **part = parts; *part && **part; part++) {
        ck_assert_msg(wb_revision_child(history, revision, *part, &child) == 0, "%s", path);
        wb_revision_unref(revision);
        revision = child;
    }
    return revision;
}

static void check_dir(int seed, const char *path, int last, int64_t when)
{
    struct wb_revision *revision = revision_of(path, when);
    g_autofree char *object = object_name(wb_revision_object(revision));
    g_autofree char *wanted = expected(object, last);
    g_autofree char *found = listed(revision, last, NULL);
    g_autofree char *found_b = listed(revision, last, "b");
    GString *only = g_string_new("");

    ck_assert_msg(strcmp(wanted, found) == 0, "seed %d, '%s' after step %d:\nexpected\n%sfound\n%s", seed, path, last,
                  wanted, found);
    expect_name(only, object, "b", last);
    ck_assert_str_eq(only->str, found_b);
    g_string_free(only, TRUE);
    wb_revision_unref(revision);
}

static void reopen(void)
{
    unsigned aborted = 0;

    wb_history_free(history);
    wb_change_init(&model.change, NULL);
    model.tree.store = wb_store_free(model.tree.store);
    tree_open_store(&model.tree);
    ck_assert_int_eq(wb_recover(model.tree.store, &aborted), 0);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
    wb_change_init(&model.change, model.tree.store);
}

/* A process that is killed between a record and its change. */
static void killed_creation(void)
{
    pid_t child;

    list_all();
    fflush(NULL);
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        g_autofree char *path = pick_new_path();
        const char *name;
        struct wb_dir *dir = tree_parent(&model.tree, path, &name);
        int r = wb_capture_birth(model.tree.store, &model.change, dir, name, WB_OP_CREATE, 0);

        _exit(r == 0 || r == -EEXIST ? 0 : 1);
    }
    {
        int status;

        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    reopen();
}

START_TEST(every_name_has_its_spans)
{
    model.rand = g_rand_new_with_seed(_i + 31);
    tree_open(&model.tree);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
    wb_change_init(&model.change, model.tree.store);
    for (int i = 0; i < STEPS; i++) {
        if (pick(25) == 0)
            killed_creation();
        else
            step();
        look(i);
    }
    for (int i = STEPS - 1; i >= 0; i -= i % 3 + 1) {
        for (guint j = 0; j < dirs_then[i]->len; j++)
            check_dir(_i, dirs_then[i]->pdata[j], i, whens[i]);
    }
    for (guint j = 0; j < dirs_then[STEPS - 1]->len; j++)
        check_dir(_i, dirs_then[STEPS - 1]->pdata[j], STEPS - 1, WB_WHEN_PRESENT);
    for (int i = 0; i < STEPS; i++) {
        g_hash_table_unref(seen[i]);
        g_ptr_array_unref(dirs_then[i]);
    }
    wb_history_free(history);
    tree_close(&model.tree);
    g_rand_free(model.rand);
}
END_TEST

/* ---- single cases ---------------------------------------------------------------------------- */

static struct wb_names *names_of(const char *path, struct wb_names_options options)
{
    struct wb_revision *revision = revision_of(path, WB_WHEN_PRESENT);
    struct wb_names *names;

    ck_assert_int_eq(wb_names_open(history, revision, &options, &names), 0);
    wb_revision_unref(revision);
    return names;
}

static const struct wb_name *item(const struct wb_names *names, const char *name, unsigned number)
{
    for (size_t i = 0; i < wb_names_count(names); i++)
        if (strcmp(wb_names_get(names, i)->name, name) == 0 && number-- == 0)
            return wb_names_get(names, i);
    return NULL;
}

static void setup(void)
{
    tree_open(&model.tree);
    ck_assert_int_eq(wb_history_open(&history, model.tree.store), 0);
}

static void teardown(void)
{
    wb_history_free(history);
    tree_close(&model.tree);
}

START_TEST(a_moved_name_has_its_new_place)
{
    struct wb_names *names;
    const struct wb_name *name;

    op_birth(&model.tree, "d", WB_OP_MKDIR);
    op_birth(&model.tree, "e", WB_OP_MKDIR);
    op_make(&model.tree, "d/a", "text");
    op_rename(&model.tree, "d/a", "d/b", 0);
    op_rename(&model.tree, "d/b", "e/c", 0);
    op_make(&model.tree, "d/x", "more");
    op_remove(&model.tree, "d/x", false);
    names = names_of("d", (struct wb_names_options){.spans = 1});
    ck_assert_uint_eq(wb_names_count(names), 3);
    name = item(names, "a", 0);
    ck_assert(name->moved && !name->present && wb_object_equal(name->to_dir, tree_object(&model.tree, "d")));
    ck_assert_str_eq(name->to_name, "b");
    name = item(names, "b", 0);
    ck_assert(name->moved && wb_object_equal(name->to_dir, tree_object(&model.tree, "e")));
    ck_assert_str_eq(name->to_name, "c");
    ck_assert(wb_object_equal(name->object, tree_object(&model.tree, "e/c")));
    name = item(names, "x", 0);
    ck_assert(!name->moved && !name->present && S_ISREG(name->mode));
    ck_assert_uint_eq(name->size, 4);
    wb_names_free(names);
}
END_TEST

START_TEST(directories_are_listed_however_old)
{
    struct wb_names *names;
    struct wb_object objects[40];
    unsigned found = 0;

    for (unsigned i = 0; i < G_N_ELEMENTS(objects); i++) {
        op_birth(&model.tree, "build", WB_OP_MKDIR);
        objects[i] = tree_object(&model.tree, "build");
        op_remove(&model.tree, "build", true);
        op_make(&model.tree, "file", "");
        op_remove(&model.tree, "file", false);
    }
    names = names_of("", (struct wb_names_options){.spans = 2});
    ck_assert_ptr_nonnull(item(names, "file", 1));
    ck_assert_ptr_null(item(names, "file", 2));
    ck_assert_uint_eq(item(names, "file", 0)->spans, G_N_ELEMENTS(objects));
    for (unsigned i = 0; item(names, "build", i); i++)
        found += wb_object_equal(item(names, "build", i)->object, objects[G_N_ELEMENTS(objects) - 1 - i]);
    ck_assert_uint_eq(found, G_N_ELEMENTS(objects));
    wb_names_free(names);
}
END_TEST

START_TEST(a_directory_renamed_over_is_listed_as_well)
{
    struct wb_names *names;
    struct wb_object old;

    op_birth(&model.tree, "d", WB_OP_MKDIR);
    op_make(&model.tree, "d/f", "x");
    op_remove(&model.tree, "d/f", false);
    old = tree_object(&model.tree, "d");
    op_birth(&model.tree, "new", WB_OP_MKDIR);
    op_rename(&model.tree, "new", "d", 0);
    names = names_of("", (struct wb_names_options){.spans = 1});
    ck_assert(item(names, "d", 0)->replaced != item(names, "d", 1)->replaced);
    ck_assert_uint_eq(item(names, "d", 0)->spans, 1);
    ck_assert(wb_object_equal(item(names, "d", 0)->replaced ? item(names, "d", 0)->object : item(names, "d", 1)->object,
                              old));
    wb_names_free(names);
}
END_TEST

/* ---- permissions ----------------------------------------------------------------------------- */

/* Every user may list a directory that is 07x5 all the way up. */
static int may(void *data, struct wb_revision *dir)
{
    unsigned *asked = data;

    ++*asked;
    for (; dir; dir = wb_revision_parent(dir)) {
        struct wb_attrs attrs;

        ck_assert_int_eq(wb_revision_attrs(history, dir, &attrs), 0);
        if ((attrs.mode & 05) != 05)
            return -EACCES;
    }
    return 0;
}

static char *visible(const char *path)
{
    unsigned asked = 0;
    struct wb_names *names = names_of(path, (struct wb_names_options){.spans = 9, .may = may, .data = &asked});
    GString *text = g_string_new("");

    for (size_t i = 0; i < wb_names_count(names); i++)
        g_string_append_printf(text, "%s ", wb_names_get(names, i)->name);
    ck_assert_uint_ge(asked, 1);
    wb_names_free(names);
    return g_string_free(text, FALSE);
}

static void expect_visible(const char *path, const char *wanted)
{
    g_autofree char *found = visible(path);

    ck_assert_str_eq(found, wanted);
}

static void make_and_remove(const char *path)
{
    op_make(&model.tree, path, "x");
    op_remove(&model.tree, path, false);
}

START_TEST(names_closed_then_are_not_listed)
{
    ck_assert_int_eq(chmod(model.tree.path, 0755), 0);
    op_birth(&model.tree, "top", WB_OP_MKDIR);
    op_birth(&model.tree, "top/d", WB_OP_MKDIR);
    op_chmod(&model.tree, "top", 0755);
    op_chmod(&model.tree, "top/d", 0755);
    make_and_remove("top/d/open1");
    op_make(&model.tree, "top/d/long", "x");
    op_make(&model.tree, "top/d/stays", "x");
    op_chmod(&model.tree, "top/d", 0700);
    make_and_remove("top/d/secret1");
    op_remove(&model.tree, "top/d/long", false);
    op_chmod(&model.tree, "top/d", 0755);
    make_and_remove("top/d/open2");
    op_chmod(&model.tree, "top", 0700);
    make_and_remove("top/d/secret2");
    op_chmod(&model.tree, "top", 0755);
    make_and_remove("top/d/open3");
    expect_visible("top/d", "long open1 open2 open3 stays ");
    /* Elsewhere, behind a directory that was closed then. */
    op_birth(&model.tree, "closed", WB_OP_MKDIR);
    op_chmod(&model.tree, "closed", 0700);
    op_rename(&model.tree, "top/d", "closed/d", 0);
    make_and_remove("closed/d/secret3");
    op_rename(&model.tree, "closed/d", "d", 0);
    make_and_remove("d/open4");
    make_and_remove("later");
    expect_visible("d", "long open1 open2 open3 open4 stays ");
    op_chmod(&model.tree, "d", 0700);
    make_and_remove("d/secret4");
    expect_visible("d", "long open1 open2 open3 open4 stays ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("names");
    TCase *tcase = tcase_create("model"), *single = tcase_create("single");
    SRunner *runner;
    int failed;

    model_init();
    tcase_set_timeout(tcase, 200);
    tcase_add_loop_test(tcase, every_name_has_its_spans, 0, amount(10, 4));
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(single, setup, teardown);
    tcase_add_test(single, a_moved_name_has_its_new_place);
    tcase_add_test(single, directories_are_listed_however_old);
    tcase_add_test(single, a_directory_renamed_over_is_listed_as_well);
    tcase_add_test(single, names_closed_then_are_not_listed);
    suite_add_tcase(suite, single);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
