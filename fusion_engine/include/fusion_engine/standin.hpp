// SPDX-License-Identifier: Apache-2.0
//
// Reads the recipe of an opaque layer (StandIn) that fusion-engine made, for those who write Arm NN backends.
//
// C++17 and the standard library only; everything is inline. docs/recipe.md describes the format, of which this
// header reads version 1. What it takes is checked throughout: references resolve, data inputs are read once each,
// layers do not feed each other in a cycle. Parameters are checked when they are asked for, since which ones there
// are depends on the layer's type. Whatever is wrong, in bytes or in what is asked for, is a RecipeError.
//
//     const fusion_engine::Recipe recipe = fusion_engine::Recipe::parse(bytes, size);
//     for (const auto& layer : recipe.layers)
//         if (layer.type == "Convolution2d")
//             use(layer.integer("strideX"), recipe.findConstant(0, "weights"));
//
// Nothing here recurses over its input, and nothing is kept of the bytes that were parsed. All types may be read from
// several threads at once. Where the standard library cannot read floating-point numbers by std::from_chars, a stream
// does; defining FUSION_ENGINE_WITHOUT_TO_CHARS chooses that everywhere.
#ifndef FUSION_ENGINE_STANDIN_HPP
#define FUSION_ENGINE_STANDIN_HPP

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <locale>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace fusion_engine
{

/// Largest recipe that is read, in bytes.
inline constexpr std::size_t MaxBytes = std::size_t{1} << 24;

/// Recipes inside recipes that are read, the outermost counted.
inline constexpr unsigned MaxNesting = 16;

/// Brackets inside brackets that are read.
inline constexpr std::size_t MaxDepth = std::size_t{8} * MaxNesting;

/// The format version that is read.
inline constexpr unsigned FormatVersion = 1;

/// Bytes that are no recipe, or a value asked for that the recipe does not have.
class RecipeError : public std::runtime_error
{
public:
    /// `place` says where in the recipe ("byte 17", "layers[0].params.padLeft"), `reason` what is wrong and what to do.
    RecipeError(std::string place, std::string reason)
        : std::runtime_error(place.empty() ? reason : place + ": " + reason)
        , m_Place(std::move(place))
        , m_Reason(std::move(reason))
    {}

    const std::string& place() const noexcept { return m_Place; }
    const std::string& reason() const noexcept { return m_Reason; }

private:
    std::string m_Place;
    std::string m_Reason;
};

namespace detail
{
class Parser;

inline constexpr const char* Damaged = "; the recipe is damaged: fuse the model again with fusion-engine";
inline constexpr std::string_view Mark = "\"format\":\"fusion-engine recipe\"";

/// A name for an error message: quoted, of bounded length, without control characters.
inline std::string quoted(std::string_view text)
{
    constexpr std::size_t most = 80;
    std::string shown = "'";
    for (const char c : text.substr(0, most))
    {
        shown += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
    return shown + (text.size() > most ? "...'" : "'");
}
} // namespace detail

/// A JSON value of a parsed recipe: a light handle that keeps the parsed recipe alive.
///
/// Strings are bytes as they are in the .armnn file: UTF-8, and for names that are no UTF-8 the bytes themselves.
class Json
{
public:
    enum class Kind : std::uint8_t
    {
        Null,
        Boolean,
        Integer, ///< A number without point and exponent.
        Number,  ///< A number with point or exponent.
        String,
        Array,
        Object
    };

    /// Null.
    Json() = default;

    Kind kind() const noexcept { return m_Document ? node().kind : Kind::Null; }
    bool isNull() const noexcept { return kind() == Kind::Null; }

    /// true or false.
    bool boolean() const
    {
        expect(Kind::Boolean, "true or false");
        return node().integer != 0;
    }

    /// A number without point and exponent.
    std::int64_t integer() const
    {
        expect(Kind::Integer, "an integer");
        return node().integer;
    }

    /// An integer between two bounds, both included.
    std::int64_t integer(std::int64_t least, std::int64_t most) const
    {
        const std::int64_t value = integer();
        if (value < least || value > most)
        {
            fail("is " + std::to_string(value) + ", expected " + std::to_string(least) + " to " +
                 std::to_string(most));
        }
        return value;
    }

    /// An integer of 32 bits without sign.
    std::uint32_t unsigned32() const
    {
        return static_cast<std::uint32_t>(integer(0, std::numeric_limits<std::uint32_t>::max()));
    }

    /// A float32: a number with point or exponent, or one of the texts "inf", "-inf", "nan" and "nan:" with the bits.
    float number() const
    {
        if (kind() == Kind::Number)
        {
            return finite(node().number);
        }
        expect(Kind::String, "a float");
        return special(node().string(*m_Document));
    }

    /// A text; it may hold NUL bytes.
    std::string string() const
    {
        expect(Kind::String, "a text");
        return std::string(node().string(*m_Document));
    }

    /// Number of elements of a list, of members of an object.
    std::size_t size() const
    {
        if (kind() != Kind::Object)
        {
            expect(Kind::Array, "a list or an object");
        }
        return node().span.count;
    }

    /// Element of a list.
    Json at(std::size_t index) const
    {
        expect(Kind::Array, "a list");
        if (index >= node().span.count)
        {
            fail("has " + std::to_string(size()) + " elements, so none of number " + std::to_string(index));
        }
        return Json(m_Document, node().span.begin + static_cast<std::uint32_t>(index));
    }

    /// Name of a member of an object; members are in the order of their names' bytes.
    std::string key(std::size_t index) const
    {
        expect(Kind::Object, "an object");
        if (index >= node().span.count)
        {
            fail("has " + std::to_string(size()) + " members, so none of number " + std::to_string(index));
        }
        return std::string(member(index));
    }

    /// Whether an object has a member of that name; false for what is no object.
    bool has(std::string_view name) const { return kind() == Kind::Object && find(name).has_value(); }

    /// Member of an object.
    Json at(std::string_view name) const
    {
        expect(Kind::Object, "an object");
        const std::optional<std::uint32_t> found = find(name);
        if (!found)
        {
            fail("has no " + detail::quoted(name) + "; it has " + names());
        }
        return Json(m_Document, *found);
    }

    /// Member of a member ...: names with dots between them. A number is the element of a list.
    Json path(std::string_view names) const
    {
        Json found = *this;
        while (true)
        {
            const std::size_t dot = names.find('.');
            const std::string_view name = names.substr(0, dot);
            found = found.kind() == Kind::Array ? found.at(found.indexOf(name)) : found.at(name);
            if (dot == std::string_view::npos)
            {
                return found;
            }
            names.remove_prefix(dot + 1);
        }
    }

    /// A list of integers.
    std::vector<std::int64_t> integers() const
    {
        return each<std::int64_t>([](const Json& value) { return value.integer(); });
    }

    /// A list of float32.
    std::vector<float> numbers() const
    {
        return each<float>([](const Json& value) { return value.number(); });
    }

    /// A list of truth values.
    std::vector<bool> booleans() const
    {
        return each<bool>([](const Json& value) { return value.boolean(); });
    }

    /// Where the value is in the recipe, as "layers[0].params.padLeft"; empty for the whole.
    std::string place() const
    {
        // A container comes after what it holds, so one way through the nodes finds all of them.
        std::string found;
        if (!m_Document)
        {
            return found;
        }
        std::uint32_t inside = m_Index;
        for (std::uint32_t index = m_Index + 1; index < m_Document->nodes.size(); ++index)
        {
            const Node& holder = m_Document->nodes[index];
            const bool object = holder.kind == Kind::Object;
            if (!object && holder.kind != Kind::Array)
            {
                continue;
            }
            const std::uint32_t first = holder.span.begin;
            const std::uint32_t count = holder.span.count * (object ? 2U : 1U);
            if (inside < first || inside - first >= count)
            {
                continue;
            }
            const std::string step =
                object ? std::string(m_Document->nodes[first + (inside - first) / 2 * 2].string(*m_Document))
                       : "[" + std::to_string(inside - first) + "]";
            found = step + (found.empty() || found.front() == '[' ? "" : ".") + found;
            inside = index;
        }
        return found;
    }

    /// Throws a RecipeError for this value.
    [[noreturn]] void fail(const std::string& reason) const { throw RecipeError(place(), reason); }

private:
    friend class detail::Parser;

    struct Document;

    /// 16 bytes, since a recipe may have millions.
    struct Node
    {
        struct Span
        {
            std::uint32_t begin;
            std::uint32_t count;
        };
        union
        {
            Span span; ///< Bytes in `Document::strings`; elements or members (name, value) in `Document::nodes`.
            std::int64_t integer;
            double number;
        };
        Kind kind;

        std::string_view string(const Document& document) const
        {
            return std::string_view(document.strings).substr(span.begin, span.count);
        }
    };

    struct Document
    {
        std::vector<Node> nodes; ///< What a container holds lies together and before the container; the whole is last.
        std::string strings;
    };

    Json(std::shared_ptr<const Document> document, std::uint32_t index)
        : m_Document(std::move(document))
        , m_Index(index)
    {}

    const Node& node() const noexcept { return m_Document->nodes[m_Index]; }

    void expect(Kind wanted, const char* what) const
    {
        if (kind() != wanted)
        {
            static constexpr const char* shown[] = {"null", "true or false", "an integer", "a number with a point",
                                                    "a text", "a list", "an object"};
            fail(std::string("is ") + shown[static_cast<std::size_t>(kind())] + ", expected " + what);
        }
    }

    std::string_view member(std::size_t index) const
    {
        const std::size_t place = node().span.begin + 2 * index;
        return m_Document->nodes[place].string(*m_Document);
    }

    std::optional<std::uint32_t> find(std::string_view name) const
    {
        std::size_t low = 0;
        std::size_t high = node().span.count;
        while (low < high)
        {
            const std::size_t middle = low + (high - low) / 2;
            (member(middle) < name ? low : high) = member(middle) < name ? middle + 1 : middle;
        }
        if (low == node().span.count || member(low) != name)
        {
            return std::nullopt;
        }
        return node().span.begin + 2 * static_cast<std::uint32_t>(low) + 1;
    }

    std::string names() const
    {
        constexpr std::size_t most = 40;
        std::string shown;
        for (std::size_t index = 0; index < node().span.count && index < most; ++index)
        {
            shown += (index ? ", " : "") + detail::quoted(member(index));
        }
        return shown.empty() ? "nothing" : shown + (node().span.count > most ? " ..." : "");
    }

    std::size_t indexOf(std::string_view digits) const
    {
        std::size_t index = 0;
        const char* const end = digits.data() + digits.size();
        const auto [stop, error] = std::from_chars(digits.data(), end, index);
        if (digits.empty() || stop != end || error != std::errc())
        {
            fail("is a list, and " + detail::quoted(digits) + " is no number of an element");
        }
        return index;
    }

    template <typename Value, typename Read>
    std::vector<Value> each(Read read) const
    {
        expect(Kind::Array, "a list");
        std::vector<Value> values;
        values.reserve(size());
        for (std::size_t index = 0; index < size(); ++index)
        {
            values.push_back(read(at(index)));
        }
        return values;
    }

    /// The nearest float32, ties to even.
    float finite(double value) const
    {
        constexpr double largest = FLT_MAX;
        constexpr double halfway = 0x1.ffffffp+127; // to the next power of two, which is no float32
        if (std::fabs(value) >= halfway)
        {
            fail("is too large for a float32");
        }
        return static_cast<float>(std::min(std::max(value, -largest), largest));
    }

    float special(std::string_view text) const
    {
        static_assert(sizeof(float) == sizeof(std::uint32_t) && std::numeric_limits<float>::is_iec559,
                      "float is IEEE 754 binary32");
        constexpr std::uint32_t quiet = 0x7fc00000;
        if (text == "inf" || text == "-inf")
        {
            return (text == "inf" ? 1.0F : -1.0F) * std::numeric_limits<float>::infinity();
        }
        std::uint32_t bits = 0;
        if (text == "nan")
        {
            bits = quiet;
        }
        else if (text.size() == 12 && text.substr(0, 4) == "nan:" &&
                 text.find_first_not_of("0123456789abcdef", 4) == std::string_view::npos)
        {
            std::from_chars(text.data() + 4, text.data() + text.size(), bits, 16);
        }
        if ((bits & 0x7fffffffU) <= 0x7f800000U || (bits == quiet && text.size() > 3))
        {
            fail("is the text " + detail::quoted(text) + ", expected a float");
        }
        float value = 0.0F;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

    std::shared_ptr<const Document> m_Document;
    std::uint32_t m_Index = 0;
};

namespace detail
{

/// JSON (RFC 8259) without names that occur twice, with the surrogates that stand for bytes.
class Parser
{
public:
    explicit Parser(std::string_view text)
        : m_Text(text)
    {}

    Json parse()
    {
        auto document = std::make_shared<Json::Document>();
        m_Document = document.get();
        do
        {
            value();
        } while (!complete());
        if (m_Position != m_Text.size())
        {
            fail("there is something after the JSON");
        }
        document->nodes.push_back(m_Pending.back());
        const auto root = static_cast<std::uint32_t>(document->nodes.size() - 1);
        return Json(std::move(document), root);
    }

private:
    using Kind = Json::Kind;
    using Node = Json::Node;

    struct Open
    {
        bool object;
        std::size_t first; ///< Where in `m_Pending` what it holds begins.
    };

    [[noreturn]] void fail(const std::string& reason) const
    {
        throw RecipeError("byte " + std::to_string(m_Position), reason + Damaged);
    }

    char peek() const noexcept { return m_Position < m_Text.size() ? m_Text[m_Position] : '\0'; }

    bool take(char wanted) noexcept
    {
        if (m_Position == m_Text.size() || m_Text[m_Position] != wanted)
        {
            return false;
        }
        ++m_Position;
        return true;
    }

    void space() noexcept
    {
        while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')
        {
            ++m_Position;
        }
    }

    /// A value without others in it, or the beginnings of one with.
    void value()
    {
        while (true)
        {
            space();
            const bool object = peek() == '{';
            if (!object && peek() != '[')
            {
                scalar();
                return;
            }
            ++m_Position;
            if (m_Open.size() == MaxDepth)
            {
                fail("brackets are nested deeper than " + std::to_string(MaxDepth) + " levels");
            }
            m_Open.push_back({object, m_Pending.size()});
            space();
            if (take(object ? '}' : ']'))
            {
                close();
                return;
            }
            if (object)
            {
                name();
            }
        }
    }

    /// What comes behind a value: whether that was all, or else where the next value begins.
    bool complete()
    {
        while (true)
        {
            space();
            if (m_Open.empty())
            {
                return true;
            }
            const bool object = m_Open.back().object;
            if (take(','))
            {
                if (object)
                {
                    space();
                    name();
                }
                return false;
            }
            if (!take(object ? '}' : ']'))
            {
                fail(object ? "expected , or }" : "expected , or ]");
            }
            close();
        }
    }

    void name()
    {
        if (peek() != '"')
        {
            fail("expected a name in quotes");
        }
        string();
        space();
        if (!take(':'))
        {
            fail("expected :");
        }
    }

    void close()
    {
        const Open open = m_Open.back();
        m_Open.pop_back();
        const auto first = m_Pending.begin() + static_cast<std::ptrdiff_t>(open.first);
        const auto held = static_cast<std::uint32_t>(m_Pending.size() - open.first);
        Node node;
        node.kind = open.object ? Kind::Object : Kind::Array;
        node.span = {static_cast<std::uint32_t>(m_Document->nodes.size()), open.object ? held / 2 : held};
        if (open.object)
        {
            sorted(open.first, node.span.count);
        }
        m_Document->nodes.insert(m_Document->nodes.end(), first, m_Pending.end());
        m_Pending.erase(first, m_Pending.end());
        m_Pending.push_back(node);
    }

    /// Brings the members of an object into the order of their names.
    void sorted(std::size_t first, std::size_t count)
    {
        std::vector<std::pair<Node, Node>> members;
        members.reserve(count);
        for (std::size_t index = 0; index < count; ++index)
        {
            members.emplace_back(m_Pending[first + 2 * index], m_Pending[first + 2 * index + 1]);
        }
        const auto before = [this](const auto& a, const auto& b) {
            return a.first.string(*m_Document) < b.first.string(*m_Document);
        };
        if (!std::is_sorted(members.begin(), members.end(), before))
        {
            std::sort(members.begin(), members.end(), before);
        }
        for (std::size_t index = 0; index < count; ++index)
        {
            if (index && !before(members[index - 1], members[index]))
            {
                fail("an object has " + quoted(members[index].first.string(*m_Document)) + " twice");
            }
            m_Pending[first + 2 * index] = members[index].first;
            m_Pending[first + 2 * index + 1] = members[index].second;
        }
    }

    void scalar()
    {
        const char c = peek();
        if (c == '"')
        {
            string();
        }
        else if (c == '-' || (c >= '0' && c <= '9'))
        {
            number();
        }
        else if (!literal("null", Kind::Null, 0) && !literal("true", Kind::Boolean, 1) &&
                 !literal("false", Kind::Boolean, 0))
        {
            fail("expected a value");
        }
    }

    bool literal(std::string_view word, Kind kind, std::int64_t value)
    {
        if (m_Text.substr(m_Position, word.size()) != word)
        {
            return false;
        }
        m_Position += word.size();
        Node node;
        node.kind = kind;
        node.integer = value;
        m_Pending.push_back(node);
        return true;
    }

    // Numbers

    std::size_t digits()
    {
        const std::size_t first = m_Position;
        while (peek() >= '0' && peek() <= '9')
        {
            ++m_Position;
        }
        if (m_Position == first)
        {
            fail("expected a digit");
        }
        return m_Position - first;
    }

    void number()
    {
        const std::size_t first = m_Position;
        take('-');
        const bool zero = peek() == '0';
        if (digits() > 1 && zero)
        {
            fail("a number begins with a 0 too many");
        }
        bool integral = true;
        if (take('.'))
        {
            integral = false;
            digits();
        }
        if (take('e') || take('E'))
        {
            integral = false;
            take('+') || take('-');
            digits();
        }
        const std::string_view text = m_Text.substr(first, m_Position - first);
        Node node;
        node.kind = integral ? Kind::Integer : Kind::Number;
        if (integral)
        {
            const auto result = std::from_chars(text.data(), text.data() + text.size(), node.integer);
            if (result.ec != std::errc())
            {
                fail("an integer has more than 64 bits");
            }
        }
        else
        {
            node.number = real(text);
        }
        m_Pending.push_back(node);
    }

    /// The nearest double, whatever the locale; 0 where it is too small for one.
    double real(std::string_view text) const
    {
        constexpr std::int64_t beyond = 400; // decimal orders of magnitude that no double has
        const std::int64_t order = magnitude(text);
        if (order > beyond)
        {
            fail("a number is too large");
        }
        if (order < -beyond)
        {
            return text.front() == '-' ? -0.0 : 0.0;
        }
        double value = 0.0;
#if defined(__cpp_lib_to_chars) && __cpp_lib_to_chars >= 201611L && !defined(FUSION_ENGINE_WITHOUT_TO_CHARS)
        const bool read = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
#else
        std::istringstream stream{std::string(text)};
        stream.imbue(std::locale::classic());
        const bool read = static_cast<bool>(stream >> value);
#endif
        if (!read && order > 0)
        {
            fail("a number is too large");
        }
        return read ? value : (text.front() == '-' ? -0.0 : 0.0);
    }

    /// Digits of a decimal number before its point, once the exponent is worked in; negative for zeros behind it.
    static std::int64_t magnitude(std::string_view text)
    {
        constexpr std::int64_t enough = 1'000'000'000;
        const std::size_t e = text.find_first_of("eE");
        const std::string_view mantissa = text.substr(0, e);
        const std::size_t leading = mantissa.find_first_of("123456789");
        if (leading == std::string_view::npos)
        {
            return -enough;
        }
        const std::size_t point = std::min(mantissa.find('.'), mantissa.size());
        const auto order = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(leading) + (leading > point);
        std::int64_t exponent = 0;
        if (e != std::string_view::npos)
        {
            for (const char c : text.substr(e + 1))
            {
                exponent = c == '+' || c == '-' ? 0 : std::min(exponent * 10 + (c - '0'), enough);
            }
            exponent = text[e + 1] == '-' ? -exponent : exponent;
        }
        return order + exponent;
    }

    // Strings

    void string()
    {
        std::string& strings = m_Document->strings;
        Node node;
        node.kind = Kind::String;
        node.span.begin = static_cast<std::uint32_t>(strings.size());
        ++m_Position;
        while (!take('"'))
        {
            if (m_Position == m_Text.size())
            {
                fail("a text does not end");
            }
            if (take('\\'))
            {
                escape(strings);
            }
            else
            {
                character(strings);
            }
        }
        node.span.count = static_cast<std::uint32_t>(strings.size()) - node.span.begin;
        m_Pending.push_back(node);
    }

    /// One character as it stands: well-formed UTF-8 (Unicode, table 3-7), no control character.
    void character(std::string& strings)
    {
        const auto byte = [this](std::size_t offset) -> unsigned {
            return m_Position + offset < m_Text.size() ? static_cast<unsigned char>(m_Text[m_Position + offset]) : 0U;
        };
        const unsigned lead = byte(0);
        if (lead < 0x20)
        {
            fail("a text holds a control character");
        }
        std::size_t length = 1;
        if (lead >= 0x80)
        {
            length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
            const unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
            const unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
            bool good = lead >= 0xc2 && lead <= 0xf4 && byte(1) >= least && byte(1) <= most;
            for (std::size_t offset = 2; offset < length; ++offset)
            {
                good = good && (byte(offset) & 0xc0U) == 0x80U;
            }
            if (!good)
            {
                fail("a text is no UTF-8");
            }
        }
        strings.append(m_Text.substr(m_Position, length));
        m_Position += length;
    }

    void escape(std::string& strings)
    {
        static constexpr std::string_view letters = "\"\\/bfnrt";
        static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
        const std::size_t found = m_Position < m_Text.size() ? letters.find(peek()) : std::string_view::npos;
        if (found != std::string_view::npos)
        {
            strings += meanings[found];
            ++m_Position;
            return;
        }
        if (!take('u'))
        {
            fail("a text has a \\ with nothing behind it that JSON knows");
        }
        unsigned code = hexadecimal();
        if (code >= 0xd800 && code < 0xdc00 && m_Text.substr(m_Position, 2) == "\\u")
        {
            m_Position += 2;
            const unsigned low = hexadecimal();
            if (low < 0xdc00 || low > 0xdfff)
            {
                fail("a text has half of a surrogate pair");
            }
            code = 0x10000 + ((code - 0xd800) << 10U) + (low - 0xdc00);
        }
        encode(strings, code);
    }

    unsigned hexadecimal()
    {
        unsigned code = 0;
        const std::string_view four = m_Text.substr(m_Position, 4);
        const auto result = std::from_chars(four.data(), four.data() + four.size(), code, 16);
        if (four.size() < 4 || four.front() == '-' || result.ptr != four.data() + four.size())
        {
            fail("a \\u has not four hexadecimal digits behind it");
        }
        m_Position += 4;
        return code;
    }

    void encode(std::string& strings, unsigned code) const
    {
        const auto put = [&strings](unsigned byte) { strings += static_cast<char>(static_cast<unsigned char>(byte)); };
        if (code >= 0xd800 && code <= 0xdfff)
        {
            if (code < 0xdc80 || code > 0xdcff)
            {
                fail("a text has a surrogate that stands for no byte");
            }
            put(code - 0xdc00);
        }
        else if (code < 0x80)
        {
            put(code);
        }
        else if (code < 0x800)
        {
            put(0xc0U | (code >> 6U));
            put(0x80U | (code & 0x3fU));
        }
        else if (code < 0x10000)
        {
            put(0xe0U | (code >> 12U));
            put(0x80U | ((code >> 6U) & 0x3fU));
            put(0x80U | (code & 0x3fU));
        }
        else
        {
            put(0xf0U | (code >> 18U));
            put(0x80U | ((code >> 12U) & 0x3fU));
            put(0x80U | ((code >> 6U) & 0x3fU));
            put(0x80U | (code & 0x3fU));
        }
    }

    std::string_view m_Text;
    std::size_t m_Position = 0;
    Json::Document* m_Document = nullptr;
    std::vector<Node> m_Pending; ///< Values whose container is not closed yet.
    std::vector<Open> m_Open;
};

} // namespace detail

/// An Arm NN TensorInfo.
struct TensorDescription
{
    bool given = false;   ///< Whether the network had a TensorInfo there; everything else is empty where not.
    std::string dataType; ///< "Float32", "QAsymmU8" ..., as spelled in the file: "QuantisedAsymm8" is "QAsymmU8", too.
    std::vector<std::uint32_t> shape;
    std::vector<float> scales; ///< One, or with quantization per axis one per index of that axis.
    std::int32_t offset = 0;
    std::int64_t quantizationDim = -1; ///< The axis of quantization per axis, -1 without.
    std::uint32_t dimensionality = 0;  ///< 1 where the shape is known, 2 for a scalar.
    std::vector<bool> dimensionSpecificity;
    bool isConstant = false;

    /// Number of elements.
    std::uint64_t elements() const
    {
        std::uint64_t product = 1;
        for (const std::uint32_t extent : shape)
        {
            if (extent && product > std::numeric_limits<std::uint64_t>::max() / extent)
            {
                throw RecipeError("", "a shape has more elements than 64 bits count");
            }
            product *= extent;
        }
        return product;
    }
};

/// Where an input of a layer comes from.
struct Source
{
    enum class Kind : std::uint8_t
    {
        DataInput, ///< Input slot `index` of the StandIn.
        Layer,     ///< Output slot `slot` of layer `index` of the recipe.
        Constant   ///< Constant `index` of the recipe: the StandIn's input slot `Recipe::slotOfConstant(index)`.
    };
    Kind kind = Kind::DataInput;
    std::uint32_t index = 0;
    std::uint32_t slot = 0; ///< 0 unless `kind` is Layer.
};

/// What a Constant of the StandIn was.
struct ConstantDescription
{
    std::uint32_t layer = 0; ///< Number of the layer that it belonged to.
    std::string field;       ///< The member tensor of that name; empty where it was a Constant layer.
    std::int64_t slot = -1;  ///< Input slot that it was on as a Constant layer; -1 for a member tensor.
    std::string name;        ///< Name of the Constant layer.
    std::string layout;      ///< A letter per axis ("OHWI", "1HWO", "C" ...); empty where it is not known.
};

struct Recipe;

/// An input slot with a TensorInfo of its own.
struct OverrideDescription
{
    std::uint32_t slot = 0;
    bool isOverridden = false;
    TensorDescription info;
};

/// A layer that was fused.
struct LayerDescription
{
private:
    /// Errors name the layer: whoever asks for a parameter seldom knows the number of the layer.
    template <typename Read>
    auto asked(std::string_view path, Read read) const
    {
        try
        {
            return read(params.path(path));
        }
        catch (const RecipeError& error)
        {
            throw RecipeError("parameter " + detail::quoted(path) + " of layer " + detail::quoted(name) + " (" + type +
                                  ")",
                              error.what());
        }
    }

public:
    std::string type; ///< LayerType, as spelled in the file.
    std::string name;
    Json params; ///< The descriptor; null where the layer lacked it.
    std::vector<Source> inputs;
    std::vector<TensorDescription> outputs;
    std::vector<OverrideDescription> overrides;
    std::shared_ptr<const Recipe> recipe; ///< Where the layer was an opaque layer itself; else null.

    /// A parameter by Arm NN's name of it. Dots lead into nested tables, numbers into lists: "viewOrigins.0".
    Json param(std::string_view path) const { return asked(path, [](const Json& value) { return value; }); }

    /// Whether there is such a parameter.
    bool has(std::string_view path) const
    {
        try
        {
            static_cast<void>(params.path(path));
        }
        catch (const RecipeError&)
        {
            return false;
        }
        return true;
    }

    /// A parameter that is an integer.
    std::int64_t integer(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.integer(); });
    }

    /// A parameter that is an integer of 32 bits without sign, as strides and paddings are.
    std::uint32_t unsigned32(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.unsigned32(); });
    }

    /// A parameter that is a float.
    float number(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.number(); });
    }

    /// A parameter that is true or false.
    bool boolean(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.boolean(); });
    }

    /// A parameter that is a text, as the values of enumerations are: "NHWC". One without a name is an integer.
    std::string string(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.string(); });
    }

    /// A parameter that is a list of integers.
    std::vector<std::int64_t> integers(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.integers(); });
    }

    /// A parameter that is a list of floats.
    std::vector<float> numbers(std::string_view path) const
    {
        return asked(path, [](const Json& value) { return value.numbers(); });
    }

    /// A parameter that is a list of anything.
    std::vector<Json> array(std::string_view path) const
    {
        return asked(path, [](const Json& value) {
            if (value.kind() != Json::Kind::Array)
            {
                value.fail("is no list");
            }
            std::vector<Json> elements;
            for (std::size_t index = 0; index < value.size(); ++index)
            {
                elements.push_back(value.at(index));
            }
            return elements;
        });
    }
};

/// What an opaque layer was fused from.
struct Recipe
{
    std::string result;                        ///< The rule's `into`: the StandIn's name up to its first colon.
    std::string rule;                          ///< Name of the rule.
    std::int32_t code = 0;                     ///< The rule's `code`: the quantization offset of the recipe's Constant.
    std::string dialect;                       ///< "current" for files of releases 19.08 and later.
    std::vector<std::uint32_t> featureVersions; ///< bindingIdsScheme, weightsLayoutScheme, constantTensorsAsInputs.
    std::uint32_t inputs = 0;                  ///< Number of data inputs: the StandIn's first input slots.
    std::vector<ConstantDescription> constants; ///< The StandIn's next input slots.
    std::vector<LayerDescription> layers;      ///< The one with the outputs first.
    std::vector<std::uint32_t> outputs; ///< Per output slot of the StandIn the output slot of `layers[0]`: 0, 1, 2 ...

    /// Reads the values of a StandIn's last input. Throws RecipeError where they are no recipe of version 1.
    static Recipe parse(const void* bytes, std::size_t size);

    /// Whether bytes are marked as a recipe of any version; cheaper than `parse`, and no promise that it succeeds.
    static bool isRecipe(const void* bytes, std::size_t size) noexcept
    {
        return bytes != nullptr && size <= MaxBytes &&
               std::string_view(static_cast<const char*>(bytes), size).find(detail::Mark) != std::string_view::npos;
    }

    /// Number of input slots that the StandIn has: data inputs, constants and the recipe itself.
    std::uint64_t slots() const noexcept { return std::uint64_t{inputs} + constants.size() + 1; }

    /// Input slot of the StandIn that a constant is on.
    std::uint64_t slotOfConstant(std::size_t constant) const
    {
        if (constant >= constants.size())
        {
            throw RecipeError("", "there is no constant " + std::to_string(constant) + ", since the recipe has " +
                                      std::to_string(constants.size()));
        }
        return std::uint64_t{inputs} + constant;
    }

    /// Number of the constant that is a tensor of a layer, be it a member tensor of that name or, for "weights" and
    /// "biases", a Constant on the layer's input slot 1 or 2; nothing where there is none.
    std::optional<std::uint32_t> findConstant(std::size_t layer, std::string_view field) const
    {
        if (layer >= layers.size())
        {
            throw RecipeError("", "there is no layer " + std::to_string(layer) + ", since the recipe has " +
                                      std::to_string(layers.size()));
        }
        for (std::size_t index = 0; index < constants.size(); ++index)
        {
            if (constants[index].layer == layer && !field.empty() && constants[index].field == field)
            {
                return static_cast<std::uint32_t>(index);
            }
        }
        static constexpr std::string_view weighted[] = {"Convolution2d", "Convolution3d", "DepthwiseConvolution2d",
                                                        "FullyConnected"};
        const LayerDescription& owner = layers[layer];
        const bool takes = std::find(std::begin(weighted), std::end(weighted), owner.type) != std::end(weighted);
        const std::size_t slot = field == "weights" ? 1 : field == "biases" ? 2 : 0;
        if (!takes || slot == 0 || slot >= owner.inputs.size() || owner.inputs[slot].kind != Source::Kind::Constant)
        {
            return std::nullopt;
        }
        return owner.inputs[slot].index;
    }

    /// Throws RecipeError where a StandIn with that many input and output slots is not the one the recipe tells of.
    void expectSlots(std::size_t inputSlots, std::size_t outputSlots) const
    {
        if (inputSlots != slots() || outputSlots != outputs.size())
        {
            throw RecipeError("", "the StandIn has " + std::to_string(inputSlots) + " input slots and " +
                                      std::to_string(outputSlots) + " output slots, and its recipe tells of " +
                                      std::to_string(slots()) + " and " + std::to_string(outputs.size()) +
                                      "; leave the layer to others, or fuse the model again");
        }
    }
};

namespace detail
{

inline constexpr std::uint32_t Most32 = std::numeric_limits<std::uint32_t>::max();

inline void expectKeys(const Json& object, std::initializer_list<const char*> wanted)
{
    for (const char* const key : wanted)
    {
        static_cast<void>(object.at(std::string_view(key)));
    }
    if (object.size() == wanted.size())
    {
        return;
    }
    for (std::size_t index = 0; index < object.size(); ++index)
    {
        const std::string key = object.key(index);
        if (std::find(wanted.begin(), wanted.end(), key) == wanted.end())
        {
            object.fail("has " + quoted(key) + ", which the format does not have" + Damaged);
        }
    }
}

inline Json list(const Json& value)
{
    if (value.kind() != Json::Kind::Array)
    {
        value.fail(std::string("is no list") + Damaged);
    }
    return value;
}

/// A number below a bound.
inline std::uint32_t below(const Json& value, std::size_t bound, const char* what)
{
    const std::uint32_t number = value.unsigned32();
    if (number >= bound)
    {
        value.fail("is " + std::to_string(number) + ", and there are " + std::to_string(bound) + " " + what + Damaged);
    }
    return number;
}

inline TensorDescription readTensor(const Json& value)
{
    TensorDescription tensor;
    if (value.isNull())
    {
        return tensor;
    }
    expectKeys(value, {"dimensions", "dataType", "quantizationScale", "quantizationOffset", "quantizationScales",
                       "quantizationDim", "dimensionality", "dimensionSpecificity", "isConstant"});
    tensor.given = true;
    tensor.dataType = value.at("dataType").string();
    const Json dimensions = list(value.at("dimensions"));
    for (std::size_t index = 0; index < dimensions.size(); ++index)
    {
        tensor.shape.push_back(dimensions.at(index).unsigned32());
    }
    const float scale = value.at("quantizationScale").number();
    tensor.scales = value.at("quantizationScales").numbers();
    const std::uint32_t axis = value.at("quantizationDim").unsigned32();
    tensor.quantizationDim = tensor.scales.empty() ? -1 : std::int64_t{axis};
    if (tensor.scales.empty())
    {
        tensor.scales.push_back(scale);
    }
    using Offset = std::numeric_limits<std::int32_t>;
    tensor.offset = static_cast<std::int32_t>(value.at("quantizationOffset").integer(Offset::min(), Offset::max()));
    tensor.dimensionality = value.at("dimensionality").unsigned32();
    tensor.dimensionSpecificity = value.at("dimensionSpecificity").booleans();
    tensor.isConstant = value.at("isConstant").boolean();
    return tensor;
}

inline ConstantDescription readConstant(const Json& value, std::size_t layers)
{
    ConstantDescription constant;
    if (value.has("field"))
    {
        expectKeys(value, {"field", "layer", "layout"});
        constant.field = value.at("field").string();
    }
    else
    {
        expectKeys(value, {"layer", "layout", "name", "slot"});
        constant.name = value.at("name").string();
        constant.slot = value.at("slot").unsigned32();
    }
    constant.layer = below(value.at("layer"), layers, "layers");
    const Json layout = value.at("layout");
    constant.layout = layout.isNull() ? std::string() : layout.string();
    return constant;
}

inline Source readSource(const Json& value)
{
    Source source;
    if (value.has("input"))
    {
        expectKeys(value, {"input"});
        source.index = value.at("input").unsigned32();
    }
    else if (value.has("constant"))
    {
        expectKeys(value, {"constant"});
        source.kind = Source::Kind::Constant;
        source.index = value.at("constant").unsigned32();
    }
    else
    {
        expectKeys(value, {"layer", "slot"});
        source.kind = Source::Kind::Layer;
        source.index = value.at("layer").unsigned32();
        source.slot = value.at("slot").unsigned32();
    }
    return source;
}

inline void readOverrides(const Json& values, LayerDescription& layer)
{
    std::vector<bool> seen(layer.inputs.size());
    for (std::size_t index = 0; index < list(values).size(); ++index)
    {
        const Json value = values.at(index);
        expectKeys(value, {"info", "isOverridden", "slot"});
        OverrideDescription made;
        made.slot = below(value.at("slot"), layer.inputs.size(), "input slots");
        if (seen[made.slot])
        {
            value.fail(std::string("is of an input slot that has one already") + Damaged);
        }
        seen[made.slot] = true;
        made.isOverridden = value.at("isOverridden").boolean();
        made.info = readTensor(value.at("info"));
        layer.overrides.push_back(std::move(made));
    }
}

/// A layer without its recipe.
inline LayerDescription readLayer(const Json& value)
{
    LayerDescription layer;
    layer.type = value.at("type").string();
    if (value.has("recipe"))
    {
        expectKeys(value, {"inputs", "name", "outputs", "overrides", "params", "recipe", "type"});
        if (layer.type != "StandIn")
        {
            value.fail("has a recipe and is a " + quoted(layer.type) + ", no StandIn" + Damaged);
        }
    }
    else
    {
        expectKeys(value, {"inputs", "name", "outputs", "overrides", "params", "type"});
    }
    layer.name = value.at("name").string();
    layer.params = value.at("params");
    if (!layer.params.isNull() && layer.params.kind() != Json::Kind::Object)
    {
        layer.params.fail(std::string("is no object") + Damaged);
    }
    const Json sources = list(value.at("inputs"));
    for (std::size_t index = 0; index < sources.size(); ++index)
    {
        layer.inputs.push_back(readSource(sources.at(index)));
    }
    const Json infos = list(value.at("outputs"));
    for (std::size_t index = 0; index < infos.size(); ++index)
    {
        layer.outputs.push_back(readTensor(infos.at(index)));
    }
    readOverrides(value.at("overrides"), layer);
    return layer;
}

inline void readHead(const Json& value, Recipe& recipe)
{
    if (!value.has("format") || value.at("format").kind() != Json::Kind::String ||
        value.at("format").string() != "fusion-engine recipe")
    {
        value.fail("it is not marked as a recipe; leave the layer to others");
    }
    const std::uint32_t version = value.at("version").unsigned32();
    if (version != FormatVersion)
    {
        value.at("version").fail("is " + std::to_string(version) + ", and this header reads version " +
                                 std::to_string(FormatVersion) + ": use a newer standin.hpp");
    }
    expectKeys(value, {"code", "constants", "dialect", "featureVersions", "format", "inputs", "layers", "outputs",
                       "result", "rule", "version"});
    recipe.rule = value.at("rule").string();
    recipe.result = value.at("result").string();
    using Code = std::numeric_limits<std::int32_t>;
    recipe.code = static_cast<std::int32_t>(value.at("code").integer(Code::min(), Code::max()));
    recipe.dialect = value.at("dialect").string();
    const Json versions = list(value.at("featureVersions"));
    for (std::size_t index = 0; index < versions.size(); ++index)
    {
        recipe.featureVersions.push_back(versions.at(index).unsigned32());
    }
    if (versions.size() != 3)
    {
        versions.fail(std::string("are not three numbers") + Damaged);
    }
    recipe.inputs = value.at("inputs").unsigned32();
    if (list(value.at("layers")).size() == 0)
    {
        value.fail(std::string("it has no layers") + Damaged);
    }
}

/// A recipe, those inside it being left out.
inline void readRecipe(const Json& value, Recipe& recipe)
{
    readHead(value, recipe);
    const Json layers = value.at("layers");
    for (std::size_t index = 0; index < layers.size(); ++index)
    {
        recipe.layers.push_back(readLayer(layers.at(index)));
    }
    const Json constants = list(value.at("constants"));
    for (std::size_t index = 0; index < constants.size(); ++index)
    {
        recipe.constants.push_back(readConstant(constants.at(index), layers.size()));
    }
    const Json outputs = list(value.at("outputs"));
    for (std::size_t index = 0; index < outputs.size(); ++index)
    {
        recipe.outputs.push_back(outputs.at(index).unsigned32());
        if (recipe.outputs.back() != index)
        {
            outputs.at(index).fail("is not " + std::to_string(index) + Damaged);
        }
    }
    if (recipe.outputs.size() != recipe.layers.front().outputs.size())
    {
        outputs.fail(std::string("are not those of layers[0]") + Damaged);
    }
}

/// That every source resolves, data inputs are read once each, and all layers but the first are read.
inline void checkSources(const Json& value, const Recipe& recipe)
{
    // There may be 4,000,000,000 data inputs by their number alone; there are no more than sources that read them.
    std::vector<std::uint32_t> data;
    std::vector<bool> read(recipe.layers.size());
    for (std::size_t number = 0; number < recipe.layers.size(); ++number)
    {
        const LayerDescription& layer = recipe.layers[number];
        for (std::size_t slot = 0; slot < layer.inputs.size(); ++slot)
        {
            const Source& source = layer.inputs[slot];
            bool good = false;
            switch (source.kind)
            {
                case Source::Kind::DataInput:
                    good = source.index < recipe.inputs;
                    data.push_back(source.index);
                    break;
                case Source::Kind::Constant:
                    good = source.index < recipe.constants.size() && recipe.constants[source.index].slot >= 0;
                    break;
                case Source::Kind::Layer:
                    good = source.index < recipe.layers.size() &&
                           source.slot < recipe.layers[source.index].outputs.size();
                    if (good)
                    {
                        read[source.index] = true;
                    }
                    break;
            }
            if (!good)
            {
                value.at("layers").at(number).at("inputs").at(slot).fail(std::string("comes from nowhere") + Damaged);
            }
        }
    }
    std::sort(data.begin(), data.end());
    if (data.size() != recipe.inputs || std::adjacent_find(data.begin(), data.end()) != data.end())
    {
        value.at("inputs").fail(std::string("the data inputs are not read once each") + Damaged);
    }
    for (std::size_t number = 1; number < read.size(); ++number)
    {
        if (!read[number])
        {
            value.at("layers").at(number).fail(std::string("is read by no other layer") + Damaged);
        }
    }
}

/// That every constant is where it says, once.
inline void checkConstants(const Json& value, const Recipe& recipe)
{
    std::vector<std::pair<std::uint32_t, std::string_view>> members;
    for (std::size_t number = 0; number < recipe.constants.size(); ++number)
    {
        const ConstantDescription& constant = recipe.constants[number];
        if (constant.slot < 0)
        {
            members.emplace_back(constant.layer, constant.field);
            continue;
        }
        const std::vector<Source>& sources = recipe.layers[constant.layer].inputs;
        const auto slot = static_cast<std::size_t>(constant.slot);
        if (slot >= sources.size() || sources[slot].kind != Source::Kind::Constant || sources[slot].index != number)
        {
            value.at("constants").at(number).fail(std::string("is not on the input slot that it names") + Damaged);
        }
    }
    std::sort(members.begin(), members.end());
    const auto twice = std::adjacent_find(members.begin(), members.end());
    if (twice != members.end())
    {
        value.at("constants").fail("have " + quoted(twice->second) + " of layer " + std::to_string(twice->first) +
                                   " twice" + Damaged);
    }
}

/// That the recipe of each opaque layer inside fits that layer's slots.
inline void checkNested(const Json& value, const Recipe& recipe)
{
    for (std::size_t number = 0; number < recipe.layers.size(); ++number)
    {
        const LayerDescription& layer = recipe.layers[number];
        if (!layer.recipe)
        {
            continue;
        }
        const Recipe& inner = *layer.recipe;
        bool good = layer.inputs.size() + 1 == inner.slots() && layer.outputs.size() == inner.outputs.size();
        for (std::size_t slot = inner.inputs; good && slot < layer.inputs.size(); ++slot)
        {
            good = layer.inputs[slot].kind == Source::Kind::Constant;
        }
        if (!good)
        {
            value.at("layers").at(number).at("recipe").fail(std::string("does not fit the slots of its layer") +
                                                            Damaged);
        }
    }
}

inline void checkAcyclic(const Json& value, const Recipe& recipe)
{
    std::vector<std::vector<std::uint32_t>> readers(recipe.layers.size());
    std::vector<std::size_t> waiting(recipe.layers.size());
    for (std::size_t number = 0; number < recipe.layers.size(); ++number)
    {
        for (const Source& source : recipe.layers[number].inputs)
        {
            if (source.kind == Source::Kind::Layer)
            {
                readers[source.index].push_back(static_cast<std::uint32_t>(number));
                ++waiting[number];
            }
        }
    }
    std::vector<std::size_t> ready;
    for (std::size_t number = 0; number < waiting.size(); ++number)
    {
        if (!waiting[number])
        {
            ready.push_back(number);
        }
    }
    std::size_t done = 0;
    while (!ready.empty())
    {
        const std::size_t number = ready.back();
        ready.pop_back();
        ++done;
        for (const std::uint32_t reader : readers[number])
        {
            if (!--waiting[reader])
            {
                ready.push_back(reader);
            }
        }
    }
    if (done != recipe.layers.size())
    {
        value.at("layers").fail(std::string("feed each other in a cycle") + Damaged);
    }
}

} // namespace detail

inline Recipe Recipe::parse(const void* bytes, std::size_t size)
{
    if (bytes == nullptr || size == 0)
    {
        throw RecipeError("", "there are no bytes, so no recipe; leave the layer to others");
    }
    if (size > MaxBytes)
    {
        throw RecipeError("", "there are " + std::to_string(size) + " bytes, and a recipe has at most " +
                                  std::to_string(MaxBytes) + "; leave the layer to others");
    }
    if (!isRecipe(bytes, size))
    {
        throw RecipeError("", "the bytes are not marked as a recipe; leave the layer to others");
    }
    struct Step
    {
        Json value;
        Recipe* recipe;
        unsigned level;
    };
    const Json document = detail::Parser(std::string_view(static_cast<const char*>(bytes), size)).parse();
    Recipe outermost;
    std::vector<Step> steps{{document, &outermost, 1}};
    for (std::size_t index = 0; index < steps.size(); ++index)
    {
        const Step step = steps[index];
        if (step.level > MaxNesting)
        {
            step.value.fail("recipes are nested deeper than " + std::to_string(MaxNesting) + " levels");
        }
        detail::readRecipe(step.value, *step.recipe);
        for (std::size_t number = 0; number < step.recipe->layers.size(); ++number)
        {
            const Json layer = step.value.at("layers").at(number);
            if (layer.has("recipe"))
            {
                const auto inner = std::make_shared<Recipe>();
                step.recipe->layers[number].recipe = inner;
                steps.push_back({layer.at("recipe"), inner.get(), step.level + 1});
            }
        }
    }
    for (const Step& step : steps)
    {
        detail::checkSources(step.value, *step.recipe);
        detail::checkConstants(step.value, *step.recipe);
        detail::checkNested(step.value, *step.recipe);
        detail::checkAcyclic(step.value, *step.recipe);
    }
    return outermost;
}

} // namespace fusion_engine

#endif // FUSION_ENGINE_STANDIN_HPP
