//! The listening address, which the environment may give whole or in parts.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use toml::Value;

use super::super::error::{ConfigError, Origin, Warning};
use super::super::layers::Layers;
use super::disagree;

pub(in super::super) const KEY: &str = "http.addr";
pub(super) const NAMES: [&str; 4] = [WHOLE, HOST, PORT, HTTP_PORT];
pub(in super::super) const TAKES_ADDR: &str =
    "an IP address or localhost with a port, such as 127.0.0.1:8080, or :8080 for every interface";

const WHOLE: &str = "MCP_HTTP_ADDR";
const HOST: &str = "SANDBOX_HOST";
const PORT: &str = "SANDBOX_PORT";
const HTTP_PORT: &str = "SANDBOX_HTTP_PORT";

/// Parses an address. Names are not looked up: their meaning may change, and with it who can reach the
/// daemon.
pub(in super::super) fn parse_addr(text: &str) -> Option<SocketAddr> {
    let text = text.trim();
    if let Ok(addr) = text.parse() {
        return Some(addr);
    }
    let (host, port) = text.rsplit_once(':')?;
    let ip = if host.is_empty() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { parse_host(host)? };
    // Without brackets the end of an IPv6 address would be taken for a port.
    (!host.contains(':')).then_some(SocketAddr::new(ip, parse_port(port)?))
}

fn parse_host(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("localhost") {
        return Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok()
}

fn parse_port(text: &str) -> Option<u16> {
    let text = text.trim();
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

/// Uses the whole address if it is set, else the parts; the layers below give a missing one.
pub(super) fn apply(
    layers: &mut Layers,
    env: &BTreeMap<String, String>,
    warnings: &mut Vec<Warning>,
) -> Result<(), ConfigError> {
    let whole = get(env, WHOLE, parse_addr, TAKES_ADDR)?;
    let host = get(env, HOST, parse_host, "an IP address or localhost")?;
    let takes_port = "a port from 0 to 65535";
    let ports = [
        (PORT, get(env, PORT, parse_port, takes_port)?),
        (HTTP_PORT, get(env, HTTP_PORT, parse_port, takes_port)?),
    ];
    let mut given = ports.into_iter().filter_map(|(name, port)| port.map(|port| (name, port)));
    if let Some(whole) = whole {
        if host.is_some_and(|host| host != whole.ip()) {
            warnings.push(disagree(WHOLE, HOST));
        }
        warnings.extend(given.filter(|(_, p)| *p != whole.port()).map(|(name, _)| disagree(WHOLE, name)));
        layers.set(KEY, Value::String(whole.to_string()), Origin::Environment(WHOLE));
        return Ok(());
    }
    let port = given.next();
    if let (Some((taken, port)), Some((other, second))) = (port, given.next())
        && port != second
    {
        warnings.push(disagree(taken, other));
    }
    let below = layers.text("http", "addr").and_then(parse_addr);
    let addr = match (host, port, below) {
        (None, None, _) => return Ok(()),
        (Some(host), Some((_, port)), _) => SocketAddr::new(host, port),
        (_, _, None) => return Err(layers.fail(KEY, format!("takes {TAKES_ADDR}"))),
        (host, port, Some(below)) => {
            SocketAddr::new(host.unwrap_or(below.ip()), port.map_or(below.port(), |(_, port)| port))
        }
    };
    let name = if host.is_some() { HOST } else { port.map_or(PORT, |(name, _)| name) };
    layers.set(KEY, Value::String(addr.to_string()), Origin::Environment(name));
    Ok(())
}

fn get<T>(
    env: &BTreeMap<String, String>,
    name: &'static str,
    parse: fn(&str) -> Option<T>,
    takes: &'static str,
) -> Result<Option<T>, ConfigError> {
    let Some(text) = env.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let value = parse(text);
    value.map(Some).ok_or_else(|| ConfigError::Value { name, value: Some(text.clone()), takes })
}
