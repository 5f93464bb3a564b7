/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Our line of fstab: names with any byte, and all other lines as they are, byte for byte. */
#include "service/fstab.h"
#include "place.h"
#include <check.h>
#include <glib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char place[PLACE_SIZE], path[PLACE_SIZE + 8];

static void make(void)
{
    make_place(place, "fstab");
    g_snprintf(path, sizeof(path), "%s/fstab", place);
}

static void clear(void)
{
    unlink(path);
    rmdir(place);
}

static void write_text(const char *text)
{
    ck_assert(g_file_set_contents(path, text, -1, NULL));
}

static const char *const directories[] = {
    "/srv/tree", "/a b", "/a\tb\nc", "/a\\040b", "/a\\", "/#a", "/a #b", "/\"a", "/a,b", "/\xff\xfe\x80", "/\r", "/\x1b[m",
    "/22 21 0:44 / /a rw - fuse.wayback b rw",
};

START_TEST(a_line_is_found_again)
{
    const char *directory = directories[_i];
    g_autofree char *text = NULL, *options = NULL, *line = NULL, *without = NULL, *same = NULL;

    write_text("# mine\n");
    text = wb_fstab_with(path, "# mine\n", directory, "allow_other,store=/x\\,y z");
    write_text(text);
    ck_assert(wb_fstab_has(path, directory));
    ck_assert(!wb_fstab_has(path, "/srv"));
    options = wb_fstab_options(path, directory);
    ck_assert_str_eq(options, "allow_other,store=/x\\,y z");
    ck_assert_ptr_null(wb_fstab_other(path, directory));
    line = wb_fstab_line(path, directory);
    ck_assert_ptr_null(strchr(line, '\n'));
    same = wb_fstab_with(path, text, directory, "allow_other,store=/x\\,y z");
    ck_assert_str_eq(same, text);
    without = wb_fstab_edit(text, directory, NULL);
    ck_assert_str_eq(without, "# mine\n");
}
END_TEST

static const char *const others[] = {
    "# intro\n\n# root\nUUID=ab   /\t ext4  defaults,rw 0 1 # mine\n",
    "/srv/tree /srv/tree ext4 rw 0 0\n",
    "/srv/tree/x /srv/tree/x wayback rw 0 0\n",
    "#/srv/tree /srv/tree wayback rw 0 0\n",
    "/srv/tree /srv/tree wayback\n/srv/tree /srv/tree\n/srv/tree\n",
    "/srv\\ tree /srv\\04 wayback rw 0 0\n\\\n\\0\n\\04\n",
    "22 21 0:44 /srv/tree /srv/tree rw - wayback /srv/tree rw\n",
    "SRC=/srv/tree TARGET=/srv/tree ROOT=/ OPTS=rw\n",
    " \t \n\n\r\n/dev/b\t/b\text4\trw\r\n",
    "\xff\xfe /b\x80 ext4 rw 0 0\n",
};

START_TEST(all_other_lines_stay)
{
    const char *other = others[_i];
    g_autofree char *expected = g_strconcat(other, "/srv/tree  /srv/tree  wayback  ro,nofail  0  0\n", NULL);
    g_autofree char *changed = NULL, *text = NULL, *without = NULL;

    write_text(other);
    ck_assert(!wb_fstab_has(path, "/srv/tree"));
    text = wb_fstab_with(path, other, "/srv/tree", "ro");
    ck_assert_str_eq(text, expected);
    without = wb_fstab_edit(text, "/srv/tree", NULL);
    ck_assert_str_eq(without, other);
    changed = wb_fstab_edit(text, "/srv/tree", "new");
    ck_assert(g_str_has_prefix(changed, other));
    ck_assert_str_eq(changed + strlen(other), "new\n");
}
END_TEST

START_TEST(lines_by_hand)
{
    g_autofree char *options = NULL, *other = NULL, *line = NULL;

    write_text("  /srv/tree/\t/srv/tree//  fuse.wayback  allow_other 0 0 # by hand\n/data\\040x /b wayback rw");
    line = wb_fstab_line(path, "/srv/tree");
    ck_assert_str_eq(line, "  /srv/tree/\t/srv/tree//  fuse.wayback  allow_other 0 0 # by hand");
    options = wb_fstab_options(path, "/srv/tree");
    ck_assert_str_eq(options, "allow_other");
    other = wb_fstab_other(path, "/b");
    ck_assert_str_eq(other, "/data x");
}
END_TEST

/* systemd-fstab-generator(8) mounts them, so they are ours. */
static const char *const with_words_behind[] = {
    "/srv/tree /srv/tree wayback ro # by hand", "/srv/tree /srv/tree wayback ro x 0",
    "/srv/tree /srv/tree wayback ro 0 # by hand", "/srv/tree /srv/tree wayback ro 0 0# by hand",
};

START_TEST(words_behind_the_options)
{
    g_autofree char *options = NULL, *without = NULL;

    write_text(with_words_behind[_i]);
    options = wb_fstab_options(path, "/srv/tree");
    ck_assert_ptr_nonnull(options);
    ck_assert_str_eq(options, "ro");
    without = wb_fstab_edit(with_words_behind[_i], "/srv/tree", NULL);
    ck_assert_str_eq(without, "");
}
END_TEST

START_TEST(a_long_line)
{
    enum { LENGTH = 1 << 20 };
    g_autofree char *name = g_malloc(LENGTH + 1), *text = NULL;

    memset(name, ' ', LENGTH);
    name[0] = '/';
    name[LENGTH] = '\0';
    write_text("");
    text = wb_fstab_with(path, "", name, "");
    write_text(text);
    ck_assert(wb_fstab_has(path, name));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fstab");
    TCase *tcase = tcase_create("fstab");
    SRunner *runner = srunner_create(suite);
    int failed;

    tcase_add_checked_fixture(tcase, make, clear);
    tcase_add_loop_test(tcase, a_line_is_found_again, 0, G_N_ELEMENTS(directories));
    tcase_add_loop_test(tcase, all_other_lines_stay, 0, G_N_ELEMENTS(others));
    tcase_add_test(tcase, lines_by_hand);
    tcase_add_loop_test(tcase, words_behind_the_options, 0, G_N_ELEMENTS(with_words_behind));
    tcase_add_test(tcase, a_long_line);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
