//! Which network a runtime uses: the text of `HEDDLE_NET`.

use heddle_core::Ns;
use heddle_tcp::Congestion;
use std::fmt;
use std::str::FromStr;

/// Which network a runtime's sockets use.
///
/// As text: `kernel`, or `xdp:INTERFACE` with `,key=value` for each option of [`Options`], or the same with `auto:` in
/// place of `xdp:`.
///
/// ```
/// use heddle_netstack::options::{Network, Spin};
///
/// let network: Network = "xdp:eth0,spin=50us,policy=round-robin".parse()?;
/// let Network::Xdp { options, or_kernel } = network else { panic!() };
/// assert_eq!((options.interface.as_str(), or_kernel), ("eth0", false));
/// assert_eq!(options.policy, "round-robin");
/// assert!("xdp:".parse::<Network>().is_err());
/// # Ok::<(), heddle_netstack::options::OptionsError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Network {
    /// The kernel's sockets.
    #[default]
    Kernel,
    /// Lanes over AF_XDP on one interface.
    Xdp {
        /// The interface and how it is used.
        options: Options,
        /// If the interface cannot be used, the kernel's sockets are, and a line on standard error says why.
        or_kernel: bool,
    },
}

/// How the lanes of an interface work.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The interface's name.
    pub interface: String,
    /// `policy=`: the steering policy that chooses the lane of each datagram and of each connection: a shipped one with
    /// its parameters, or the path of one in C.
    pub policy: String,
    /// `spin=`: how long a worker without work looks for frames before it sleeps.
    pub spin: Spin,
    /// `frames=`: maximum number of frames that wait in each direction, for each lane and receive queue: a power of
    /// two. By default 1,024, or fewer if the lanes would take more than 256 MiB.
    pub frames: Option<u32>,
    /// `allow=`, any number of times: networks whose packets to claimed ports are taken; those of others are dropped.
    /// By default all are taken. Firewall rules do not see claimed ports.
    pub allow: Vec<String>,
    /// `pcap=`: a file in which all frames of lanes are recorded, for Wireshark and tcpdump, which do not see them. It
    /// is overwritten.
    pub pcap: Option<String>,
    /// `mode=`: whether the driver runs the program at XDP (`native`) or the kernel does (`generic`).
    pub mode: Mode,
    /// `rto-min=`: the shortest retransmission timeout of TCP connections.
    pub rto_min: Ns,
    /// `congestion=`: the congestion control of TCP connections: `cubic`, `reno` or `bbr`. By default that of the
    /// system, if it is one of these, else CUBIC.
    pub congestion: Option<Congestion>,
    /// `offload=`: whether the kernel cuts large TCP segments where it copies frames: `on`, the default, or `off`.
    pub offload: bool,
}

/// How long a worker without work looks for frames before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// For this long. Zero, the default, means not at all.
    For(Ns),
    /// It does not sleep: its CPU is always busy.
    Forever,
}

/// Who runs the program at XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The driver if it can, else the kernel.
    #[default]
    Auto,
    /// The driver.
    Native,
    /// The kernel, after the driver has received the packet. Works on every interface, and is slower.
    Generic,
}

/// The default of [`Options::rto_min`]: Linux's (`TCP_RTO_MIN`).
const RTO_MIN: Ns = Ns::from_ms(200);

/// The range of [`Options::rto_min`]. Shorter timeouts expire before delayed acknowledgements come.
const RTO_MIN_RANGE: (Ns, Ns) = (Ns::from_ms(1), Ns::from_secs(60));

/// A text that names no network, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError(String);

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OptionsError {}

fn wrong<T>(text: impl Into<String>) -> Result<T, OptionsError> {
    Err(OptionsError(text.into()))
}

impl Options {
    /// Returns the defaults for `interface`.
    #[must_use]
    pub fn new(interface: impl Into<String>) -> Options {
        Options {
            interface: interface.into(),
            policy: "hash".to_owned(),
            spin: Spin::For(Ns::ZERO),
            frames: None,
            allow: Vec::new(),
            pcap: None,
            mode: Mode::Auto,
            rto_min: RTO_MIN,
            congestion: None,
            offload: true,
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), OptionsError> {
        match key {
            "policy" => value.clone_into(&mut self.policy),
            "spin" => self.spin = value.parse()?,
            "frames" => self.frames = Some(frames(value)?),
            "allow" => self.allow.push(value.to_owned()),
            "pcap" => self.pcap = Some(value.to_owned()),
            "mode" => self.mode = value.parse()?,
            "rto-min" => self.rto_min = rto_min(value)?,
            "congestion" => self.congestion = Some(congestion(value)?),
            "offload" => self.offload = on_or_off(key, value)?,
            _ => {
                return wrong(format!(
                    "there is no option `{key}`; there are policy, spin, frames, allow, pcap, mode, rto-min, \
                     congestion and offload"
                ));
            }
        }
        Ok(())
    }
}

fn frames(value: &str) -> Result<u32, OptionsError> {
    match value.parse::<u32>() {
        Ok(frames) if frames.is_power_of_two() && (64..=65_536).contains(&frames) => Ok(frames),
        _ => wrong(format!("`frames={value}`: not a power of two from 64 to 65536")),
    }
}

fn on_or_off(key: &str, value: &str) -> Result<bool, OptionsError> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => wrong(format!("`{key}={value}`: neither on nor off")),
    }
}

fn rto_min(value: &str) -> Result<Ns, OptionsError> {
    let (least, most) = RTO_MIN_RANGE;
    match value.parse::<Ns>() {
        Ok(time) if (least..=most).contains(&time) => Ok(time),
        _ => wrong(format!("`rto-min={value}`: not a time from {least} to {most}, such as 5ms")),
    }
}

fn congestion(value: &str) -> Result<Congestion, OptionsError> {
    match Congestion::named(value) {
        Some(congestion) => Ok(congestion),
        None => wrong(format!("`congestion={value}`: neither cubic, reno nor bbr")),
    }
}

impl FromStr for Spin {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Spin, OptionsError> {
        match (text, text.parse::<Ns>()) {
            ("forever", _) => Ok(Spin::Forever),
            ("0", _) => Ok(Spin::For(Ns::ZERO)),
            (_, Ok(time)) => Ok(Spin::For(time)),
            _ => wrong(format!("`spin={text}`: neither a time, such as 50us, nor `forever`")),
        }
    }
}

impl FromStr for Mode {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Mode, OptionsError> {
        match text {
            "auto" => Ok(Mode::Auto),
            "native" => Ok(Mode::Native),
            "generic" => Ok(Mode::Generic),
            _ => wrong(format!("`mode={text}`: neither auto, native nor generic")),
        }
    }
}

impl FromStr for Network {
    type Err = OptionsError;

    fn from_str(text: &str) -> Result<Network, OptionsError> {
        if text == "kernel" {
            return Ok(Network::Kernel);
        }
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let or_kernel = match kind {
            "xdp" => false,
            "auto" => true,
            "dpdk" => return wrong("this build has no DPDK"),
            _ => {
                return wrong(format!(
                    "`{text}` is none of kernel, xdp:INTERFACE and auto:INTERFACE"
                ));
            }
        };
        let mut parts = rest.split(',');
        let interface = parts.next().unwrap_or("");
        if interface.is_empty() || interface.contains('=') {
            return wrong(format!("`{text}` names no interface; an example: {kind}:eth0"));
        }
        let mut options = Options::new(interface);
        for part in parts {
            match part.split_once('=') {
                Some((key, value)) => options.set(key, value)?,
                None => {
                    return wrong(format!(
                        "`{part}` is not of the form key=value (one interface can be named)"
                    ));
                }
            }
        }
        Ok(Network::Xdp { options, or_kernel })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, String> {
        match text.parse() {
            Ok(Network::Xdp { options, .. }) => Ok(options),
            Ok(Network::Kernel) => Err("kernel".to_owned()),
            Err(error) => Err(OptionsError::to_string(&error)),
        }
    }

    #[test]
    fn options_are_read() {
        assert_eq!(parse("xdp:eth0"), Ok(Options::new("eth0")));
        let text = "xdp:eth0,spin=forever,frames=256,allow=10.0.0.0/8,allow=fd00::/8,mode=native,rto-min=5ms,\
                    congestion=bbr,offload=off";
        let expected = Options {
            spin: Spin::Forever,
            frames: Some(256),
            allow: vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()],
            mode: Mode::Native,
            rto_min: Ns::from_ms(5),
            congestion: Some(Congestion::Bbr),
            offload: false,
            ..Options::new("eth0")
        };
        assert_eq!(parse(text), Ok(expected));
        assert!(matches!("auto:eth0".parse(), Ok(Network::Xdp { or_kernel: true, .. })));
        assert_eq!("kernel".parse(), Ok(Network::Kernel));
    }

    #[test]
    fn wrong_texts_say_what_is_wrong() {
        let says = |text: &str, part: &str| {
            let problem = parse(text).unwrap_err();
            assert!(problem.contains(part), "{text}: {problem}");
        };
        says("eth0", "none of kernel, xdp:INTERFACE");
        says("xdp:", "names no interface; an example: xdp:eth0");
        says("xdp:spin=1us", "names no interface");
        says("xdp:eth0,eth1", "`eth1` is not of the form key=value");
        says("xdp:eth0,spin=long", "neither a time");
        says("xdp:eth0,frames=100", "power of two");
        says("xdp:eth0,rto-min=1us", "not a time from 1ms to 60s");
        says("xdp:eth0,congestion=vegas", "neither cubic, reno nor bbr");
        says("xdp:eth0,offload=yes", "neither on nor off");
        says("xdp:eth0,mtu=1", "there is no option `mtu`");
        says("dpdk:0", "no DPDK");
    }
}
