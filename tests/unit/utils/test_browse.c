/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/content.h"
#include "content/document.h"
#include "content/browse.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* The parts of vbrowse that need neither a terminal nor a mount. */

static struct browse_entry *new_entry(const char *name, mode_t mode)
{
    struct browse_entry *entry = g_new0(struct browse_entry, 1);

    entry->name = g_strdup(name);
    entry->mode = mode;
    return entry;
}

START_TEST(directories_come_first)
{
    g_autoptr(GPtrArray) entries = g_ptr_array_new_with_free_func(browse_entry_free);
    static const char *const sorted[] = {"a", "z", "B", "b", "y"};

    g_ptr_array_add(entries, new_entry("y", S_IFREG));
    g_ptr_array_add(entries, new_entry("z", S_IFDIR));
    g_ptr_array_add(entries, new_entry("b", S_IFLNK));
    g_ptr_array_add(entries, new_entry("B", S_IFREG));
    g_ptr_array_add(entries, new_entry("a", S_IFDIR));
    g_ptr_array_sort(entries, browse_entry_compare);
    for (guint i = 0; i < entries->len; i++)
        ck_assert_str_eq(((const struct browse_entry *)entries->pdata[i])->name, sorted[i]);
}
END_TEST

START_TEST(names_are_filtered)
{
    ck_assert(browse_name_matches("port", "Report.txt"));
    ck_assert(browse_name_matches("PORT", "report.txt"));
    ck_assert(browse_name_matches("\xc3\x9c", "f\xc3\xbcr"));
    ck_assert(!browse_name_matches("port", "part"));
    ck_assert(browse_name_matches("*.TXT", "report.txt"));
    ck_assert(!browse_name_matches("*.txt", "report.txt.bak"));
    ck_assert(browse_name_matches("re?ort*", "report.txt"));
    ck_assert(browse_name_matches("bad", "bad\xff"));
}
END_TEST

static void check_component(const char *path, const char *name)
{
    g_autofree char *found = browse_first_component(path);

    ck_assert_pstr_eq(found, name);
}

START_TEST(changes_belong_to_an_entry)
{
    check_component("a", "a");
    check_component("a/b/c", "a");
    check_component(".", NULL);
    check_component("", NULL);
    check_component("/elsewhere/a", NULL);
    check_component(".hidden/a", ".hidden");
}
END_TEST

/* A list as the panes see it: the filter, and the cursor that stays on its entry. */
START_TEST(the_cursor_stays_on_its_entry)
{
    struct wb_mount mount = {.root_fd = -1, .point = (char *)"/mnt"};
    struct wb_place *place = g_new0(struct wb_place, 1);
    struct browse_level *level = g_new0(struct browse_level, 1);
    struct browse *browse;

    place->mount = &mount;
    browse = browse_new(place);
    level->path = g_strdup("d");
    level->source = g_strdup("d");
    level->moment = WB_WHEN_PRESENT;
    g_ptr_array_add(browse->levels, level);
    for (const char *name = "edcba"; *name; name++) {
        const char text[] = {*name, '.', *name > 'c' ? 'x' : 'y', '\0'};

        g_ptr_array_add(browse->entries, new_entry(text, S_IFREG));
    }
    ((struct browse_entry *)browse->entries->pdata[4])->ended = 5;
    browse_entries_show(browse);
    ck_assert_uint_eq(browse->shown->len, 5);
    ck_assert_str_eq(browse_current(browse)->name, "a.y");
    browse_move(browse, 2);
    ck_assert_str_eq(browse_current(browse)->name, "c.y");
    browse->gone = BROWSE_GONE_NONE;
    browse_entries_show(browse);
    ck_assert_uint_eq(browse->shown->len, 4);
    ck_assert_str_eq(browse_current(browse)->name, "c.y");
    browse->name_filter = g_strdup(".y");
    browse_entries_show(browse);
    ck_assert_uint_eq(browse->shown->len, 2);
    ck_assert_uint_eq(browse->cursor, 1);
    browse_move(browse, 100);
    ck_assert_uint_eq(browse->cursor, 1);
    browse_move(browse, -100);
    ck_assert_uint_eq(browse->cursor, 0);
    g_free(browse->name_filter);
    browse->name_filter = g_strdup("nothing");
    browse_entries_show(browse);
    ck_assert_ptr_null(browse_current(browse));
    browse_move(browse, 1);
    {
        g_autofree char *path = browse_path_of(browse, browse->entries->pdata[0]);
        g_autofree char *absolute = browse_absolute(browse, path);

        ck_assert_str_eq(absolute, "/mnt/d/a.y");
    }
    browse_free(browse);
}
END_TEST

static void check_line(const GPtrArray *lines, guint index, const char *expected)
{
    ck_assert_uint_lt(index, lines->len);
    ck_assert_str_eq(lines->pdata[index], expected);
}

START_TEST(content_cannot_control_the_terminal)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    static const char text[] = "a\tb\r\n\n\x1b[31m\xff\nno\0nul\nend";

    content_add_lines(lines, text, sizeof(text) - 1);
    ck_assert_uint_eq(lines->len, 5);
    check_line(lines, 0, "a       b");
    check_line(lines, 1, "");
    check_line(lines, 2, "\\x1b[31m\\xff");
    check_line(lines, 3, "no\\0nul");
    check_line(lines, 4, "end");
    g_ptr_array_set_size(lines, 0);
    content_add_lines(lines, "", 0);
    ck_assert_uint_eq(lines->len, 0);
    content_add_lines(lines, "\n", 1);
    ck_assert_uint_eq(lines->len, 1);
    /* Tabs after wide characters. */
    content_add_lines(lines, "\xc3\xbc\tx", 4);
    check_line(lines, 1, "\xc3\xbc       x");
}
END_TEST

START_TEST(bytes_are_dumped)
{
    g_autoptr(GPtrArray) lines = g_ptr_array_new_with_free_func(g_free);
    static const char bytes[] = "\0\x1b" "ABCDEFGHIJKLMN" "\xff";

    content_add_dump(lines, bytes, sizeof(bytes) - 1);
    ck_assert_uint_eq(lines->len, 2);
    check_line(lines, 0, "00000000  00 1b 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d 4e  ..ABCDEFGHIJKLMN");
    ck_assert(g_str_has_prefix(lines->pdata[1], "00000010  ff   "));
    ck_assert(g_str_has_suffix(lines->pdata[1], "  ."));
}
END_TEST

START_TEST(documents_are_read)
{
    g_autoptr(JsonObject) object = document_parse("{\"path\":\"caf\\ufffd\",\"path_bytes\":\"Y2Fm6Q==\",\"n\":7,\"plain\":\"x\","
                                                  "\"last\":{\"time\":\"\",\"epoch\":\"1795179787.123456789\"},\"none\":null,"
                                                  "\"list\":[1],\"error\":{\"path\":\"a\\u001b\",\"message\":\"failed\"}}");
    g_autofree char *path = document_text(object, "path");
    g_autofree char *plain = document_text(object, "plain");
    g_autofree char *missing = document_text(object, "missing");
    g_autofree char *error = document_error(object);

    ck_assert_str_eq(path, "caf\xe9");
    ck_assert_str_eq(plain, "x");
    ck_assert_ptr_null(missing);
    ck_assert_str_eq(error, "a\\x1b: failed");
    ck_assert_int_eq(document_int(object, "n"), 7);
    ck_assert_int_eq(document_int(object, "none"), 0);
    ck_assert_int_eq(document_instant(object, "last"), INT64_C(1795179787123456789));
    ck_assert_int_eq(document_instant(object, "none"), 0);
    ck_assert_ptr_nonnull(document_array(object, "list"));
    ck_assert_ptr_null(document_array(object, "n"));
    ck_assert_ptr_null(document_object(object, "list"));
    /* No object, or none at all. */
    ck_assert_ptr_null(document_parse("[1]"));
    ck_assert_ptr_null(document_parse("no JSON"));
    ck_assert_ptr_null(document_word(NULL, "x"));
    ck_assert_ptr_null(document_array(NULL, "x"));
    ck_assert_ptr_null(document_error(NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("browse");
    TCase *tests = tcase_create("browse");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, directories_come_first);
    tcase_add_test(tests, names_are_filtered);
    tcase_add_test(tests, changes_belong_to_an_entry);
    tcase_add_test(tests, the_cursor_stays_on_its_entry);
    tcase_add_test(tests, content_cannot_control_the_terminal);
    tcase_add_test(tests, bytes_are_dumped);
    tcase_add_test(tests, documents_are_read);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
