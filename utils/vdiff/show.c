/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vdiff.h"
#include "common/pager.h"
#include "client/path.h"
#include "common/text.h"
#include <inttypes.h>
#include <string.h>
#include <sys/sysmacros.h>

char *diff_name(const struct diff *diff, const char *path)
{
    return wb_path_join(strcmp(diff->place->given, ".") == 0 && *path ? "" : diff->place->given, path);
}

/* Names with these are written as C strings, as GNU patch and git read them. */
static bool is_plain(const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == '"' || *name == '\\' || *name == 0x7f)
            return false;
    return true;
}

char *diff_label(const struct diff *diff, int side, const char *path)
{
    g_autofree char *name = diff_name(diff, path);
    g_autofree char *label = g_strdup_printf("%c/%s", side == OLD ? 'a' : 'b', name + strspn(name, "/"));
    g_autofree char *escaped = NULL;

    if (is_plain(label))
        return g_steal_pointer(&label);
    escaped = g_strescape(label, NULL);
    return g_strdup_printf("\"%s\"", escaped);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void side_json(JsonBuilder *builder, const struct pair *pair, unsigned changes, int side)
{
    const struct stat *st = &pair->st[side];
    g_autofree char *mode = g_strdup_printf("%04o", (unsigned)st->st_mode & 07777);

    json_builder_set_member_name(builder, side == OLD ? "old" : "new");
    if (!pair->there[side]) {
        json_builder_add_null_value(builder);
        return;
    }
    json_builder_begin_object(builder);
    wb_json_string(builder, "type", wb_text_type(st->st_mode));
    wb_json_string(builder, "mode", mode);
    wb_json_int(builder, "uid", st->st_uid);
    wb_json_int(builder, "gid", st->st_gid);
    if (S_ISREG(st->st_mode))
        wb_json_int(builder, "size", st->st_size);
    if (S_ISLNK(st->st_mode)) {
        g_autofree char *target = diff_target(pair, side);

        wb_json_string(builder, "target", target);
    }
    if (changes & CHANGE_FLAGS)
        wb_json_string(builder, "flags", pair->flags[side]);
    json_builder_end_object(builder);
}

static void show_json(struct diff *diff, const struct pair *pair, unsigned changes)
{
    static const char *const words[] = {"added", "removed", "type", "content", "mode", "owner", "target", "device",
                                        "flags"};
    JsonBuilder *builder = diff->builder;

    json_builder_begin_object(builder);
    wb_json_string(builder, "path", pair->path);
    json_builder_set_member_name(builder, "changes");
    json_builder_begin_array(builder);
    for (unsigned i = 0; i < G_N_ELEMENTS(words); i++)
        if (changes & (1u << i))
            json_builder_add_string_value(builder, words[i]);
    json_builder_end_array(builder);
    side_json(builder, pair, changes, OLD);
    side_json(builder, pair, changes, NEW);
    json_builder_end_object(builder);
    wb_json_list_add(builder);
}

/* ---- for people ------------------------------------------------------------------------------ */

static void begin_line(const char *word, enum wb_color color, const char *name)
{
    printf("%s%-8s%s %s", wb_color(color), word, wb_color(WB_COLOR_OFF), name);
}

static void describe(const struct pair *pair, int side)
{
    const struct stat *st = &pair->st[side];
    char size[WB_TEXT_SIZE_MAX];

    if (S_ISREG(st->st_mode))
        printf(" (%s)\n", wb_text_size((uint64_t)st->st_size, size));
    else if (S_ISDIR(st->st_mode))
        puts("/");
    else
        printf(" (%s)\n", wb_text_type(st->st_mode));
}

static void show_attributes(const struct pair *pair, unsigned changes, const char *name)
{
    const struct stat *old = &pair->st[OLD], *new = &pair->st[NEW];

    if (changes & CHANGE_MODE) {
        begin_line("mode", WB_COLOR_YELLOW, name);
        printf(" %04o -> %04o\n", (unsigned)old->st_mode & 07777, (unsigned)new->st_mode & 07777);
    }
    if (changes & CHANGE_OWNER) {
        begin_line("owner", WB_COLOR_YELLOW, name);
        printf(" %s:%s", wb_text_user(old->st_uid), wb_text_group(old->st_gid));
        printf(" -> %s:%s\n", wb_text_user(new->st_uid), wb_text_group(new->st_gid));
    }
    if (changes & CHANGE_FLAGS) {
        begin_line("flags", WB_COLOR_YELLOW, name);
        printf(" %s -> %s\n", pair->flags[OLD], pair->flags[NEW]);
    }
    if (changes & CHANGE_TARGET) {
        g_autofree char *old_target = diff_target(pair, OLD);
        g_autofree char *new_target = diff_target(pair, NEW);
        g_autofree char *old_shown = wb_text_printable(old_target);
        g_autofree char *new_shown = wb_text_printable(new_target);

        begin_line("target", WB_COLOR_YELLOW, name);
        printf(" '%s' -> '%s'\n", old_shown, new_shown);
    }
    if (changes & CHANGE_DEVICE) {
        begin_line("device", WB_COLOR_YELLOW, name);
        printf(" %u:%u -> %u:%u\n", major(old->st_rdev), minor(old->st_rdev), major(new->st_rdev),
               minor(new->st_rdev));
    }
}

static void show_line(const struct diff *diff, const struct pair *pair, unsigned changes)
{
    g_autofree char *name = diff_name(diff, pair->path);
    g_autofree char *shown = wb_text_printable(name);

    if (changes & CHANGE_ADDED) {
        begin_line("added", WB_COLOR_GREEN, shown);
        describe(pair, NEW);
    } else if (changes & CHANGE_REMOVED) {
        begin_line("removed", WB_COLOR_RED, shown);
        describe(pair, OLD);
    } else if (changes & CHANGE_TYPE) {
        begin_line("type", WB_COLOR_YELLOW, shown);
        printf(" %s -> %s\n", wb_text_type(pair->st[OLD].st_mode), wb_text_type(pair->st[NEW].st_mode));
    }
    /* For a single file, its content shows that it changed. */
    if ((changes & CHANGE_CONTENT) && (*pair->path || diff->detail == DETAIL_BRIEF)) {
        begin_line("changed", WB_COLOR_YELLOW, shown);
        putchar('\n');
    }
    show_attributes(pair, changes, shown);
}

void diff_show(struct diff *diff, const struct pair *pair, unsigned changes)
{
    if (diff->json) {
        show_json(diff, pair, changes);
    } else if (diff->detail == DETAIL_NAMES) {
        g_autofree char *name = diff_name(diff, pair->path);
        g_autofree char *shown = wb_text_printable(name);

        puts(shown);
    } else if (diff->detail == DETAIL_DIFF || diff->detail == DETAIL_BRIEF) {
        show_line(diff, pair, changes);
    } else if (diff->detail == DETAIL_STAT && !(changes & CHANGE_CONTENT) &&
               !((changes & CHANGE_ADDED) && S_ISREG(pair->st[NEW].st_mode)) &&
               !((changes & CHANGE_REMOVED) && S_ISREG(pair->st[OLD].st_mode))) {
        show_line(diff, pair, changes);
    }
}
