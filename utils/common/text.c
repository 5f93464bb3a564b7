/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "common/text.h"
#include "wayback/quote.h"
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

const char *wb_text_size(uint64_t bytes, char text[WB_TEXT_SIZE_MAX])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    unsigned unit = 0;

    if (bytes < 1024) {
        snprintf(text, WB_TEXT_SIZE_MAX, bytes ? "%u B" : "%u", (unsigned)bytes);
        return text;
    }
    while (value >= 1023.5 && unit + 1 < G_N_ELEMENTS(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(text, WB_TEXT_SIZE_MAX, value < 9.95 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *wb_text_age(int64_t nanoseconds, char text[WB_TEXT_AGE_MAX])
{
    /* Each unit from where it says enough: 90 s, 90 min, 36 h, 14 d, 104 weeks. */
    static const struct {
        int64_t below, seconds;
        char letter;
    } units[] = {
        {90, 1, 's'}, {5400, 60, 'm'}, {129600, 3600, 'h'}, {14 * 86400, 86400, 'd'},
        {104 * 604800, 604800, 'w'}, {INT64_MAX, 31556952, 'y'},
    };
    int64_t seconds = nanoseconds > 0 ? nanoseconds / 1000000000 : 0;
    unsigned i = 0;

    while (seconds >= units[i].below)
        i++;
    snprintf(text, WB_TEXT_AGE_MAX, "%" G_GINT64_FORMAT "%c", (gint64)(seconds / units[i].seconds),
             units[i].letter);
    return text;
}

char *wb_text_count(uint64_t count, const char *one, const char *many)
{
    return g_strdup_printf("%" G_GUINT64_FORMAT " %s", count, count == 1 ? one : many);
}

const char *wb_text_user(uint32_t uid)
{
    static GHashTable *names;
    const char *name;
    struct passwd *user;

    if (!names)
        names = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    name = g_hash_table_lookup(names, GUINT_TO_POINTER(uid));
    if (name)
        return name;
    user = getpwuid(uid);
    name = user ? g_strdup(user->pw_name) : g_strdup_printf("%u", uid);
    g_hash_table_insert(names, GUINT_TO_POINTER(uid), (void *)name);
    return name;
}

const char *wb_text_group(uint32_t gid)
{
    static GHashTable *names;
    const char *name;
    struct group *group;

    if (!names)
        names = g_hash_table_new_full(NULL, NULL, NULL, g_free);
    name = g_hash_table_lookup(names, GUINT_TO_POINTER(gid));
    if (name)
        return name;
    group = getgrgid(gid);
    name = group ? g_strdup(group->gr_name) : g_strdup_printf("%u", gid);
    g_hash_table_insert(names, GUINT_TO_POINTER(gid), (void *)name);
    return name;
}

const char *wb_text_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "directory";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFBLK: return "block device";
    default: return "character device";
    }
}

const char *wb_text_time(int64_t when, bool exact, char text[WB_WHEN_TEXT_MAX])
{
    char *zone;

    if (exact)
        return wb_when_print_iso(when, text);
    wb_when_print(when, 0, text);
    /* The zone is the reader's own. */
    zone = strrchr(text, ' ');
    if (zone && zone > strchr(text, ' '))
        *zone = '\0';
    return text;
}

char *wb_text_printable(const char *bytes)
{
    return wb_quote_text(bytes);
}

static unsigned char_width(gunichar c)
{
    return g_unichar_iszerowidth(c) ? 0 : g_unichar_iswide(c) ? 2 : 1;
}

/* Length of the colour sequence at `text`, 0 if there is none. Printable text has no ESC of its own. */
static size_t color_length(const char *text)
{
    size_t length;

    if (text[0] != '\033' || text[1] != '[')
        return 0;
    length = 2 + strspn(text + 2, "0123456789;");
    return text[length] == 'm' ? length + 1 : 0;
}

unsigned wb_text_width(const char *text)
{
    unsigned width = 0;

    while (*text) {
        size_t color = color_length(text);

        if (color > 0) {
            text += color;
            continue;
        }
        width += char_width(g_utf8_get_char(text));
        text = g_utf8_next_char(text);
    }
    return width;
}

char *wb_text_cut(const char *text, unsigned width)
{
    const char *at = text;
    bool colored = false;
    unsigned used = 0;

    if (wb_text_width(text) <= width)
        return g_strdup(text);
    if (width == 0)
        return g_strdup("");
    while (*at) {
        size_t color = color_length(at);
        unsigned next;

        if (color > 0) {
            colored = true;
            at += color;
            continue;
        }
        next = char_width(g_utf8_get_char(at));
        if (used + next > width - 1)
            break;
        used += next;
        at = g_utf8_next_char(at);
    }
    return g_strdup_printf("%.*s\xe2\x80\xa6%s", (int)(at - text), text, colored ? "\033[m" : "");
}

char *wb_text_shell(const char *word)
{
    /* A path that begins with "-" would be an option. */
    g_autofree char *path = *word == '-' ? g_strconcat("./", word, NULL) : NULL;

    return wb_quote_word(path ? path : word);
}

char *wb_text_program(const char *command)
{
    size_t length = strcspn(command, " ");
    g_autofree char *word = g_strndup(command, length);
    const char *base = strrchr(word, '/') && strrchr(word, '/')[1] ? strrchr(word, '/') + 1 : word;

    if (strcmp(base, "wayback") == 0) {
        size_t verb = command[length] ? strcspn(command + length + 1, " ") : 0;

        return g_strdup_printf("%s%s%.*s", base, verb ? " " : "", (int)verb, verb ? command + length + 1 : "");
    }
    return g_strdup(*base ? base : "?");
}

char *wb_text_bar(uint64_t value, uint64_t most, unsigned width)
{
    /* Eighths of a column. */
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    bool utf8 = g_get_charset(NULL);
    GString *bar = g_string_new(NULL);
    guint eighths = most > 0 ? (guint)((double)MIN(value, most) / (double)most * width * 8 + 0.5) : 0;

    if (value > 0)
        eighths = MAX(eighths, 1);
    for (guint i = 0; i < (utf8 ? eighths / 8 : (eighths + 7) / 8); i++)
        g_string_append(bar, utf8 ? "█" : "#");
    if (utf8)
        g_string_append(bar, parts[eighths % 8]);
    return g_string_free(bar, FALSE);
}

int64_t wb_text_period(int64_t when, int64_t width)
{
    time_t seconds = (time_t)(when / WB_WHEN_SECOND);
    struct tm local = {0};
    int64_t offset;

    localtime_r(&seconds, &local);
    offset = local.tm_gmtoff * WB_WHEN_SECOND;
    return (when + offset) / width * width - offset;
}
