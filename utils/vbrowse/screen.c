/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "vbrowse/screen.h"
#include "common/cli.h"
#include "common/text.h"
#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <term.h> /* defines macros such as `lines` */
#include <unistd.h>

static struct {
    SCREEN *screen;
    bool colors;
    int errors;    /* what standard error was */
    int kept;      /* where it goes           */
    off_t taken;   /* so much of that was shown */
    bool gone;     /* the terminal hung up    */
    attr_t styles[SCREEN_STYLES];
} terminal = {.errors = -1, .kept = -1};

/* ---- begin and end ------------------------------------------------------------------------------ */

static bool wants_colors(void)
{
    const char *none = g_getenv("NO_COLOR");

    return !(none && *none) && has_colors();
}

static void choose_styles(void)
{
    static const struct {
        enum screen_style style;
        short color;
    } colors[] = {{SCREEN_RED, COLOR_RED}, {SCREEN_GREEN, COLOR_GREEN}, {SCREEN_YELLOW, COLOR_YELLOW},
                  {SCREEN_BLUE, COLOR_BLUE}, {SCREEN_CYAN, COLOR_CYAN}};

    terminal.styles[SCREEN_TITLE] = A_REVERSE;
    terminal.styles[SCREEN_CURSOR] = A_REVERSE;
    terminal.styles[SCREEN_BESIDE] = A_BOLD | A_UNDERLINE;
    terminal.styles[SCREEN_BOLD] = A_BOLD;
    terminal.styles[SCREEN_FAINT] = A_DIM;
    terminal.colors = wants_colors() && start_color() == OK;
    if (!terminal.colors)
        return;
    use_default_colors();
    for (size_t i = 0; i < G_N_ELEMENTS(colors); i++) {
        short pair = (short)(i + 1);

        if (init_pair(pair, colors[i].color, -1) == OK)
            terminal.styles[colors[i].style] = (attr_t)COLOR_PAIR(pair);
    }
}

/* Errors of shared code would be printed over the screen. */
static void keep_errors(void)
{
    terminal.kept = memfd_create("errors", MFD_CLOEXEC);
    terminal.errors = dup(STDERR_FILENO);
    if (terminal.kept >= 0)
        dup2(terminal.kept, STDERR_FILENO);
}

/* On a second signal. */
static void last_words(void)
{
    endwin();
}

/* newterm(3) would leave memory behind for a terminal that it does not know. */
static bool can_place_text(void)
{
    int error;
    const char *place;

    if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return false;
    place = tigetstr((char *)"cup");
    place = place == (char *)-1 ? NULL : place;
    del_curterm(cur_term);
    return place != NULL;
}

int screen_begin(void)
{
    const char *name = g_getenv("TERM");

    terminal.screen = can_place_text() ? newterm(NULL, stdout, stdin) : NULL;
    if (!terminal.screen)
        return wb_cli_usage("the terminal '%s' (TERM) cannot place text; '%s' lists the versions of a file",
                            name ? name : "", wb_cli_tool("vstat"));
    keep_errors();
    wb_cli_last_words(last_words);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    intrflush(stdscr, FALSE);
    set_escdelay(100);
    curs_set(0);
    choose_styles();
    return 0;
}

void screen_end(void)
{
    char text[4096];
    ssize_t n;

    if (!terminal.screen)
        return;
    endwin();
    wb_cli_last_words(NULL);
    delscreen(terminal.screen);
    terminal.screen = NULL;
    fflush(stderr);
    if (terminal.errors >= 0)
        dup2(terminal.errors, STDERR_FILENO);
    while (terminal.kept >= 0 && (n = pread(terminal.kept, text, sizeof(text), terminal.taken)) > 0) {
        terminal.taken += n;
        if (write(STDERR_FILENO, text, (size_t)n) < 0)
            break;
    }
}

char *screen_take_error(void)
{
    g_autofree char *name = g_strconcat(wb_cli_name(), ": ", NULL);
    g_autofree char *text = g_malloc0(4097);
    const char *line;
    ssize_t n;

    fflush(stderr);
    n = terminal.kept < 0 ? 0 : pread(terminal.kept, text, 4096, terminal.taken);
    if (n <= 0)
        return NULL;
    terminal.taken += n;
    g_strchomp(text);
    line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    return wb_text_printable(g_str_has_prefix(line, name) ? line + strlen(name) : line);
}

/* ---- output -------------------------------------------------------------------------------------- */

bool screen_is_usable(void)
{
    return LINES >= SCREEN_LINES_MIN && COLS >= SCREEN_COLUMNS_MIN;
}

int screen_lines(void)
{
    return LINES;
}

int screen_columns(void)
{
    return COLS;
}

void screen_clear(void)
{
    erase();
}

void screen_show(void)
{
    if (!screen_is_usable()) {
        g_autofree char *text = g_strdup_printf("%dx%d is too small; %dx%d is needed (q: quit)", COLS, LINES,
                                                SCREEN_COLUMNS_MIN, SCREEN_LINES_MIN);

        erase();
        mvaddnstr(0, 0, text, -1);
    }
    refresh();
}

/* In the character set of the locale. */
static char *converted(const char *text)
{
    const char *set;

    if (g_get_charset(&set))
        return g_strdup(text);
    return g_convert_with_fallback(text, -1, set, "UTF-8", "?", NULL, NULL, NULL) ?: g_strdup("?");
}

int screen_text(const struct screen_area *area, int line, int column, enum screen_style style, const char *text)
{
    int room = area->width - column;
    g_autofree char *cut = room > 0 ? wb_text_cut(text, (unsigned)room) : NULL;
    g_autofree char *shown = cut ? converted(cut) : NULL;

    if (!shown || line < 0 || line >= area->height)
        return column;
    attrset(terminal.styles[style]);
    mvaddstr(area->y + line, area->x + column, shown);
    attrset(A_NORMAL);
    return column + (int)wb_text_width(cut);
}

void screen_line(const struct screen_area *area, int line, enum screen_style style, const char *text)
{
    int column;

    if (line < 0 || line >= area->height)
        return;
    column = screen_text(area, line, 0, style, text);
    if (column < area->width) {
        attrset(terminal.styles[style]);
        mvhline(area->y + line, area->x + column, ' ' | terminal.styles[style], area->width - column);
        attrset(A_NORMAL);
    }
}

void screen_point(const struct screen_area *area, int line)
{
    if (line >= 0 && line < area->height)
        move(area->y + line, area->x);
}

void screen_rule(const struct screen_area *area, int line, enum screen_style style, const char *text)
{
    g_autofree char *spaced = *text ? g_strdup_printf(" %s ", text) : g_strdup("");

    mvhline(area->y + line, area->x, ACS_HLINE, area->width);
    screen_text(area, line, 2, style, spaced);
}

void screen_beep(void)
{
    beep();
}

void screen_message(enum screen_style style, const char *text)
{
    struct screen_area area = {LINES - 1, 0, 1, COLS - 1};

    screen_line(&area, 0, style, text);
}

/* ---- keys ---------------------------------------------------------------------------------------- */

static int translate(wint_t key)
{
    static const struct {
        wint_t curses;
        int key;
    } keys[] = {{KEY_UP, SCREEN_KEY_UP},         {KEY_DOWN, SCREEN_KEY_DOWN},
                {KEY_LEFT, SCREEN_KEY_LEFT},     {KEY_RIGHT, SCREEN_KEY_RIGHT},
                {KEY_PPAGE, SCREEN_KEY_PAGE_UP}, {KEY_NPAGE, SCREEN_KEY_PAGE_DOWN},
                {KEY_HOME, SCREEN_KEY_HOME},     {KEY_END, SCREEN_KEY_END},
                {KEY_DC, SCREEN_KEY_DELETE},     {KEY_BACKSPACE, SCREEN_KEY_BACKSPACE},
                {KEY_ENTER, SCREEN_KEY_ENTER},   {KEY_RESIZE, SCREEN_KEY_RESIZE},
                {KEY_F(1), '?'},                 {KEY_F(5), SCREEN_KEY_REFRESH}};

    for (size_t i = 0; i < G_N_ELEMENTS(keys); i++)
        if (keys[i].curses == key)
            return keys[i].key;
    return SCREEN_KEY_OTHER;
}

bool screen_wait(int fd, int milliseconds, bool *ret_fd)
{
    struct pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {fd, POLLIN, 0}};
    int r = poll(fds, fd >= 0 ? 2 : 1, milliseconds);

    terminal.gone = r > 0 && fds[0].revents & (POLLHUP | POLLERR | POLLNVAL);
    if (ret_fd)
        *ret_fd = r > 0 && fd >= 0 && fds[1].revents;
    return r > 0 && fds[0].revents;
}

static int take_key(void)
{
    wint_t key;
    int r;

    timeout(0);
    r = get_wch(&key);
    if (r == ERR)
        return SCREEN_KEY_NONE;
    if (r == KEY_CODE_YES)
        return translate(key);
    if (key == '\r')
        return SCREEN_KEY_ENTER;
    if (key == 127 || key == 8)
        return SCREEN_KEY_BACKSPACE;
    return key == 12 ? SCREEN_KEY_REFRESH : (int)key;
}

int screen_key(int milliseconds)
{
    /* Keys that curses has read already come first; and it takes note of a new size. */
    int key = take_key();

    if (key != SCREEN_KEY_NONE || milliseconds == 0)
        return key;
    screen_wait(-1, milliseconds, NULL);
    key = take_key();
    /* The signal that the kernel sends to a session without a terminal. */
    if (key == SCREEN_KEY_NONE && terminal.gone)
        raise(SIGHUP);
    return key;
}

/* ---- a line, a question ----------------------------------------------------------------------------- */

static void remove_last(GString *text)
{
    const char *last = g_utf8_find_prev_char(text->str, text->str + text->len);

    if (last)
        g_string_truncate(text, (gsize)(last - text->str));
}

static void show_prompt(const char *label, const GString *text)
{
    struct screen_area area = {LINES - 1, 0, 1, COLS - 1};
    g_autofree char *printable = wb_text_printable(text->str);
    const char *from = printable;
    int column, room;

    screen_line(&area, 0, SCREEN_PLAIN, "");
    column = screen_text(&area, 0, 0, SCREEN_BOLD, label);
    room = area.width - column - 1;
    /* The end of a long text is what the user types at. */
    while (*from && (int)wb_text_width(from) > MAX(room, 1))
        from = g_utf8_next_char(from);
    column = screen_text(&area, 0, column, SCREEN_PLAIN, from);
    move(LINES - 1, MIN(column, COLS - 1));
}

char *screen_prompt(const char *label, const char *text, void (*draw)(void *data), void *data)
{
    GString *typed = g_string_new(text);
    int key;

    curs_set(1);
    for (;;) {
        show_prompt(label, typed);
        screen_show();
        key = screen_key(-1);
        if (key == SCREEN_KEY_RESIZE)
            draw(data);
        else if (key == SCREEN_KEY_BACKSPACE)
            remove_last(typed);
        else if (key == 21) /* Ctrl-U */
            g_string_truncate(typed, 0);
        else if (key == SCREEN_KEY_ENTER || key == SCREEN_KEY_ESCAPE || wb_cli_interrupted())
            break;
        else if (key >= ' ' && key < SCREEN_KEY_UP)
            g_string_append_unichar(typed, (gunichar)key);
    }
    curs_set(0);
    return g_string_free(typed, key != SCREEN_KEY_ENTER || wb_cli_interrupted());
}

static void show_question(const GPtrArray *rows, const char *question)
{
    int height = MIN((int)rows->len + 1, LINES - 2);
    struct screen_area area = {LINES - 1 - height, 0, height, COLS};

    screen_rule(&area, 0, SCREEN_BOLD, "");
    for (int i = 0; i < height - 1; i++)
        screen_line(&area, i + 1, SCREEN_PLAIN, rows->pdata[i]);
    screen_message(SCREEN_BOLD, question);
    move(LINES - 1, MIN((int)wb_text_width(question) + 1, COLS - 1));
}

bool screen_ask(const GPtrArray *rows, const char *question, void (*draw)(void *data), void *data)
{
    int key;

    curs_set(1);
    for (;;) {
        show_question(rows, question);
        screen_show();
        key = screen_key(-1);
        if (key == SCREEN_KEY_RESIZE)
            draw(data);
        else if (key != SCREEN_KEY_NONE || wb_cli_interrupted())
            break;
    }
    curs_set(0);
    return !wb_cli_interrupted() && (key == 'y' || key == 'Y');
}
